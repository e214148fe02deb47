-- The indexes the retention job needs. The first finds the sessions to delete, oldest first. The other four serve
-- the foreign keys: the server looks up the rows that refer to each deleted row, and without an index it reads the
-- whole table for every one. CONCURRENTLY does not block writers, and cannot run inside a transaction block.

CREATE INDEX CONCURRENTLY IF NOT EXISTS sessions_inactive_ended_at_idx
    ON user_activity.sessions (ended_at)
    WHERE status = 'Inactive';

CREATE INDEX CONCURRENTLY IF NOT EXISTS property_object_views_session_id_idx
    ON user_activity.property_object_views (session_id);

CREATE INDEX CONCURRENTLY IF NOT EXISTS action_events_session_id_idx
    ON user_activity.action_events (session_id);

CREATE INDEX CONCURRENTLY IF NOT EXISTS action_events_property_object_view_id_idx
    ON user_activity.action_events (property_object_view_id)
    WHERE property_object_view_id IS NOT NULL;

CREATE INDEX CONCURRENTLY IF NOT EXISTS property_object_views_apply_filter_event_id_idx
    ON user_activity.property_object_views (apply_filter_event_id)
    WHERE apply_filter_event_id IS NOT NULL;
