-- The role the retention job connects as: it can delete, and it can do nothing else.
-- It has no password yet:                    \password activity_retention
-- To let `status` show who holds the lock:   GRANT pg_read_all_stats TO activity_retention;

DO $$
BEGIN
    CREATE ROLE activity_retention LOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
END
$$;

GRANT USAGE ON SCHEMA user_activity TO activity_retention;

GRANT SELECT, DELETE
    ON user_activity.sessions, user_activity.property_object_views, user_activity.action_events
    TO activity_retention;

-- FOR UPDATE demands UPDATE on some column; the job changes none.
GRANT UPDATE (status) ON user_activity.sessions TO activity_retention;

REVOKE ALL ON user_activity.property_object_view_stats FROM activity_retention;
