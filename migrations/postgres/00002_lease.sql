-- +goose Up
-- One row a process that holds something: its heartbeat, judged by the server's clock. What it
-- holds names it, and is free once this row is gone.
CREATE TABLE dblock_member (
    member_id  uuid        NOT NULL PRIMARY KEY,
    label      text        NOT NULL,
    beat       bigint      NOT NULL DEFAULT 0, -- grows with each heartbeat
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- One row a key. It changes when its holder changes, and never for a heartbeat. No index but the
-- key, so that every change is a HOT update. Rows are kept when they are free: the token goes on from there.
-- Free: handle is null, or held_until has passed, or the member's row is gone.
CREATE TABLE dblock_lease (
    lease_key  text COLLATE "C" NOT NULL PRIMARY KEY,
    token      bigint           NOT NULL, -- grows with each acquisition; at least the microseconds since 1970
    handle     uuid,                      -- of this acquisition; null: nobody's
    member_id  uuid,                      -- who keeps it alive; null: nobody, it lasts till held_until
    held_until timestamptz,               -- its end, whatever the member does; null: none
    changed_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    label      text             NOT NULL DEFAULT '',
    data       bytea
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- One row a key and process that waits for it: whoever releases the key looks here whether there is
-- somebody to notify.
CREATE TABLE dblock_lease_waiter (
    lease_key  text COLLATE "C" NOT NULL,
    member_id  uuid             NOT NULL,
    expires_at timestamptz      NOT NULL,
    PRIMARY KEY (lease_key, member_id)
);

-- One row a resource outside of the leases' database that is guarded by their tokens: the highest
-- that has begun to read it.
CREATE TABLE dblock_fence (
    resource  text COLLATE "C" NOT NULL PRIMARY KEY,
    token     bigint           NOT NULL,
    handle    uuid             NOT NULL,
    raised_at timestamptz      NOT NULL DEFAULT clock_timestamp()
);

-- +goose Down
DROP TABLE dblock_fence;
DROP TABLE dblock_lease_waiter;
DROP TABLE dblock_lease;
DROP TABLE dblock_member;
