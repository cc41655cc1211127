-- +goose Up
-- One row a process that holds something: its heartbeat, judged by the server's clock. What it
-- holds names it, and is free once this row is gone. Times are UTC.
CREATE TABLE IF NOT EXISTS dblock_member (
    member_id  BINARY(16)     NOT NULL PRIMARY KEY,
    label      VARBINARY(255) NOT NULL,
    beat       BIGINT         NOT NULL DEFAULT 0, -- grows with each heartbeat
    expires_at DATETIME(6)    NOT NULL
) ENGINE = InnoDB;

-- One row a key. It changes when its holder changes, and never for a heartbeat. No index but the
-- key: a second one would have the acquirers deadlock. Rows are kept when they are free: the token
-- goes on from there. Free: handle is null, or held_until has passed, or the member's row is gone.
CREATE TABLE IF NOT EXISTS dblock_lease (
    lease_key  VARBINARY(512) NOT NULL PRIMARY KEY,
    token      BIGINT         NOT NULL, -- grows with each acquisition; at least the microseconds since 1970
    handle     BINARY(16),              -- of this acquisition; null: nobody's
    member_id  BINARY(16),              -- who keeps it alive; null: nobody, it lasts till held_until
    held_until DATETIME(6),             -- its end, whatever the member does; null: none
    changed_at DATETIME(6)    NOT NULL DEFAULT (ADDTIME(UTC_TIMESTAMP(6), 0)),
    label      VARBINARY(255) NOT NULL DEFAULT '',
    data       MEDIUMBLOB
) ENGINE = InnoDB;

-- One row a key and process that waits for it.
CREATE TABLE IF NOT EXISTS dblock_lease_waiter (
    lease_key  VARBINARY(512) NOT NULL,
    member_id  BINARY(16)     NOT NULL,
    expires_at DATETIME(6)    NOT NULL,
    PRIMARY KEY (lease_key, member_id)
) ENGINE = InnoDB;

-- One row a resource outside of the leases' database that is guarded by their tokens: the highest
-- that has begun to read it.
CREATE TABLE IF NOT EXISTS dblock_fence (
    resource  VARBINARY(512) NOT NULL PRIMARY KEY,
    token     BIGINT         NOT NULL,
    handle    BINARY(16)     NOT NULL,
    raised_at DATETIME(6)    NOT NULL DEFAULT (ADDTIME(UTC_TIMESTAMP(6), 0))
) ENGINE = InnoDB;

-- +goose Down
DROP TABLE IF EXISTS dblock_fence;
DROP TABLE IF EXISTS dblock_lease_waiter;
DROP TABLE IF EXISTS dblock_lease;
DROP TABLE IF EXISTS dblock_member;
