-- +goose Up
-- While this is true readers may be there, who hold the key shared: whoever wants it for itself makes itself the holder,
-- so that no more come, and then looks at dblock_reader until the last has gone. Readers come where it is true and there is no holder.
ALTER TABLE dblock_lease ADD COLUMN shared boolean NOT NULL DEFAULT false;

-- One row a reader: while it stands nobody has the key for itself.
CREATE TABLE dblock_reader (
    lease_key  text COLLATE "C" NOT NULL,
    handle     uuid             NOT NULL, -- of this acquisition
    token      bigint           NOT NULL, -- that of all readers since the key was last held by one
    member_id  uuid,                      -- who keeps it alive; null: nobody, it lasts till held_until
    held_until timestamptz,               -- its end, whatever the member does; null: none
    changed_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    label      text             NOT NULL DEFAULT '',
    data       bytea,
    PRIMARY KEY (lease_key, handle)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- One row a semaphore: how many permits it has.
CREATE TABLE dblock_semaphore (
    lease_key  text COLLATE "C" NOT NULL PRIMARY KEY,
    permits    integer          NOT NULL,
    changed_at timestamptz      NOT NULL DEFAULT clock_timestamp()
);

-- One row a permit, from 1; those past the semaphore's number are not given out any more. Free: handle is null, or held_until
-- has passed, or the member's row is gone.
CREATE TABLE dblock_permit (
    lease_key  text COLLATE "C" NOT NULL,
    slot       integer          NOT NULL,
    token      bigint           NOT NULL DEFAULT 0, -- grows with each acquisition
    handle     uuid,                                -- of this acquisition; null: nobody's
    together   integer          NOT NULL DEFAULT 0, -- how many permits the acquisition has
    member_id  uuid,                                -- who keeps it alive; null: nobody, it lasts till held_until
    held_until timestamptz,                         -- its end, whatever the member does; null: none
    changed_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    label      text             NOT NULL DEFAULT '',
    data       bytea,
    PRIMARY KEY (lease_key, slot)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- +goose Down
DROP TABLE dblock_permit;
DROP TABLE dblock_semaphore;
DROP TABLE dblock_reader;
ALTER TABLE dblock_lease DROP COLUMN shared;
