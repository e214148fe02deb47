-- The tables of the user-activity context, as far as the retention job relies on them.

CREATE SCHEMA IF NOT EXISTS user_activity;

CREATE TABLE user_activity.sessions (
    id           uuid        NOT NULL,
    user_id      uuid,
    anonymous_id uuid,
    status       text        NOT NULL,
    created_at   timestamptz NOT NULL,
    ended_at     timestamptz,
    CONSTRAINT sessions_pkey PRIMARY KEY (id),
    CONSTRAINT sessions_status_known CHECK (status IN ('Active', 'Inactive')),
    -- INV-SES-005: an Inactive session always has ended_at.
    CONSTRAINT sessions_inactive_has_ended CHECK (status <> 'Inactive' OR ended_at IS NOT NULL),
    CONSTRAINT sessions_has_owner CHECK (user_id IS NOT NULL OR anonymous_id IS NOT NULL)
);

CREATE TABLE user_activity.property_object_views (
    id                    uuid        NOT NULL,
    session_id            uuid        NOT NULL,
    property_object_id    uuid        NOT NULL,
    apply_filter_event_id uuid,
    started_at            timestamptz NOT NULL,
    duration              interval    NOT NULL DEFAULT interval '0',
    CONSTRAINT property_object_views_pkey PRIMARY KEY (id),
    CONSTRAINT property_object_views_session_fkey
        FOREIGN KEY (session_id) REFERENCES user_activity.sessions (id) ON DELETE RESTRICT
);

CREATE TABLE user_activity.action_events (
    id                      uuid        NOT NULL,
    session_id              uuid        NOT NULL,
    kind                    text        NOT NULL,
    property_object_view_id uuid,
    occurred_at             timestamptz NOT NULL,
    payload                 jsonb,
    CONSTRAINT action_events_pkey PRIMARY KEY (id),
    CONSTRAINT action_events_session_fkey
        FOREIGN KEY (session_id) REFERENCES user_activity.sessions (id) ON DELETE RESTRICT,
    CONSTRAINT action_events_property_object_view_fkey
        FOREIGN KEY (property_object_view_id) REFERENCES user_activity.property_object_views (id)
        ON DELETE SET NULL
);

-- Views and events refer to each other, always within one session.
ALTER TABLE user_activity.property_object_views
    ADD CONSTRAINT property_object_views_apply_filter_event_fkey
        FOREIGN KEY (apply_filter_event_id) REFERENCES user_activity.action_events (id)
        ON DELETE SET NULL;

-- INV-LVS-002: these numbers only grow. No foreign key: they outlive the views they count.
CREATE TABLE user_activity.property_object_view_stats (
    property_object_id uuid     NOT NULL,
    views_count        bigint   NOT NULL,
    total_duration     interval NOT NULL,
    CONSTRAINT property_object_view_stats_pkey PRIMARY KEY (property_object_id)
);
