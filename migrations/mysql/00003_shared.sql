-- +goose Up
-- One row a reader: while it stands nobody has the key for itself.
CREATE TABLE IF NOT EXISTS dblock_reader (
    lease_key  VARBINARY(512) NOT NULL,
    handle     BINARY(16)     NOT NULL, -- of this acquisition
    token      BIGINT         NOT NULL, -- that of all readers since the key was last held by one
    member_id  BINARY(16),              -- who keeps it alive; null: nobody, it lasts till held_until
    held_until DATETIME(6),             -- its end, whatever the member does; null: none
    changed_at DATETIME(6)    NOT NULL DEFAULT (ADDTIME(UTC_TIMESTAMP(6), 0)),
    label      VARBINARY(255) NOT NULL DEFAULT '',
    data       MEDIUMBLOB,
    PRIMARY KEY (lease_key, handle)
) ENGINE = InnoDB;

-- One row a semaphore: how many permits it has.
CREATE TABLE IF NOT EXISTS dblock_semaphore (
    lease_key  VARBINARY(512) NOT NULL PRIMARY KEY,
    permits    INT            NOT NULL,
    changed_at DATETIME(6)    NOT NULL DEFAULT (ADDTIME(UTC_TIMESTAMP(6), 0))
) ENGINE = InnoDB;

-- One row a permit, from 1; those past the semaphore's number are not given out any more. Free: handle is null, or held_until
-- has passed, or the member's row is gone.
CREATE TABLE IF NOT EXISTS dblock_permit (
    lease_key  VARBINARY(512) NOT NULL,
    slot       INT            NOT NULL,
    token      BIGINT         NOT NULL DEFAULT 0, -- grows with each acquisition
    handle     BINARY(16),                        -- of this acquisition; null: nobody's
    together   INT            NOT NULL DEFAULT 0, -- how many permits the acquisition has
    member_id  BINARY(16),                        -- who keeps it alive; null: nobody, it lasts till held_until
    held_until DATETIME(6),                       -- its end, whatever the member does; null: none
    changed_at DATETIME(6)    NOT NULL DEFAULT (ADDTIME(UTC_TIMESTAMP(6), 0)),
    label      VARBINARY(255) NOT NULL DEFAULT '',
    data       MEDIUMBLOB,
    PRIMARY KEY (lease_key, slot)
) ENGINE = InnoDB;

-- While this is true readers may be there, who hold the key shared: whoever wants it for itself makes itself the holder,
-- so that no more come, and then looks at dblock_reader until the last has gone. Readers come where it is true and there is no holder.
ALTER TABLE dblock_lease ADD COLUMN shared BOOLEAN NOT NULL DEFAULT false;

-- +goose Down
ALTER TABLE dblock_lease DROP COLUMN shared;
DROP TABLE IF EXISTS dblock_permit;
DROP TABLE IF EXISTS dblock_semaphore;
DROP TABLE IF EXISTS dblock_reader;
