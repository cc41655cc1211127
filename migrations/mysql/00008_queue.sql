-- +goose Up
-- One row a queue that somebody has said something about: paused_at is since when nobody takes jobs from it. A queue without
-- a row is not paused. Times are UTC.
CREATE TABLE IF NOT EXISTS dblock_queue (
    queue     VARBINARY(255) NOT NULL PRIMARY KEY,
    paused_at DATETIME(6)
) ENGINE = InnoDB;

-- One row a job, from when it is enqueued until it has ended. The id is its client's: random, and it grows with time. A job that
-- does well is written once and deleted once; only one that failed, or whose worker died, is updated. No index but the key (a
-- second one would have workers deadlock), and no foreign key: where a job stands is in one of the tables below. attempt counts
-- the attempts that have ended.
CREATE TABLE IF NOT EXISTS dblock_queue_job (
    job_id       BINARY(16)     NOT NULL PRIMARY KEY,
    queue        VARBINARY(255) NOT NULL,
    kind         VARBINARY(255) NOT NULL,
    priority     SMALLINT       NOT NULL,
    attempt      SMALLINT       NOT NULL DEFAULT 0,
    max_attempts SMALLINT       NOT NULL,
    enqueued_at  DATETIME(6)    NOT NULL DEFAULT (ADDTIME(UTC_TIMESTAMP(6), 0)),
    unique_key   VARBINARY(255), -- its row is in dblock_queue_unique; null: none
    group_key    VARBINARY(255), -- its row is in dblock_queue_key, unless it waits for its time; null: none
    group_most   INT,            -- how many of the group there may be at once
    last_error   MEDIUMBLOB,     -- of the attempt that ended last; null: none has failed
    payload      MEDIUMBLOB     NOT NULL
) ENGINE = InnoDB;

-- One row a job that can be worked on now, in the order in which they are taken: the key is that order. Rows are inserted and
-- deleted, never updated, and there is nothing to pass over in it: jobs for later, and such as wait for others, are elsewhere.
CREATE TABLE IF NOT EXISTS dblock_queue_ready (
    queue    VARBINARY(255) NOT NULL,
    priority SMALLINT       NOT NULL, -- the lowest comes first
    ready_at DATETIME(6)    NOT NULL DEFAULT (ADDTIME(UTC_TIMESTAMP(6), 0)),
    job_id   BINARY(16)     NOT NULL,
    PRIMARY KEY (queue, priority, ready_at, job_id)
) ENGINE = InnoDB;

-- One row a job for later: delayed, snoozed, or to be tried again. With a group_key it has yet to be admitted by its group when its
-- time comes; without one it is ready then.
CREATE TABLE IF NOT EXISTS dblock_queue_scheduled (
    run_at    DATETIME(6)    NOT NULL,
    job_id    BINARY(16)     NOT NULL,
    queue     VARBINARY(255) NOT NULL,
    priority  SMALLINT       NOT NULL,
    group_key VARBINARY(255),
    PRIMARY KEY (run_at, job_id)
) ENGINE = InnoDB;

-- One row a job that a worker has taken: the fence. Whoever ends a job deletes this row first, and so proves that it was there. The
-- claim's id is the worker's own, drawn before the statement is sent. queue, priority and ready_at are the key of the row of
-- dblock_queue_ready that it took the place of.
CREATE TABLE IF NOT EXISTS dblock_queue_claim (
    member_id  BINARY(16)     NOT NULL, -- whose heartbeat keeps it: with the member's row it is void
    claim_id   BINARY(16)     NOT NULL,
    job_id     BINARY(16)     NOT NULL,
    queue      VARBINARY(255) NOT NULL,
    priority   SMALLINT       NOT NULL,
    ready_at   DATETIME(6)    NOT NULL,
    claimed_at DATETIME(6)    NOT NULL DEFAULT (ADDTIME(UTC_TIMESTAMP(6), 0)),
    PRIMARY KEY (member_id, claim_id, job_id)
) ENGINE = InnoDB;

-- One row a job that somebody wants a worker to stop.
CREATE TABLE IF NOT EXISTS dblock_queue_cancel (
    member_id BINARY(16)  NOT NULL,
    job_id    BINARY(16)  NOT NULL,
    asked_at  DATETIME(6) NOT NULL DEFAULT (ADDTIME(UTC_TIMESTAMP(6), 0)),
    PRIMARY KEY (member_id, job_id)
) ENGINE = InnoDB;

-- One row a group of jobs that share an ordering or a concurrency key, while there are any. taken jobs of it are admitted: ready,
-- claimed, or to be tried again; the others are in dblock_queue_blocked, in the order of seq. Whoever changes either has this row locked.
CREATE TABLE IF NOT EXISTS dblock_queue_key (
    queue     VARBINARY(255) NOT NULL,
    group_key VARBINARY(255) NOT NULL,
    most      INT            NOT NULL, -- how many may be admitted at once; 1 keeps their order
    taken     INT            NOT NULL,
    next_seq  BIGINT         NOT NULL DEFAULT 1,
    PRIMARY KEY (queue, group_key),
    CONSTRAINT dblock_queue_key_taken CHECK (taken >= 0 AND most > 0)
) ENGINE = InnoDB;

-- One row a job that waits for others of its group.
CREATE TABLE IF NOT EXISTS dblock_queue_blocked (
    queue     VARBINARY(255) NOT NULL,
    group_key VARBINARY(255) NOT NULL,
    seq       BIGINT         NOT NULL,
    job_id    BINARY(16)     NOT NULL,
    priority  SMALLINT       NOT NULL,
    PRIMARY KEY (queue, group_key, seq)
) ENGINE = InnoDB;

-- One row a unique key that is taken: by a job that has not ended.
CREATE TABLE IF NOT EXISTS dblock_queue_unique (
    queue      VARBINARY(255) NOT NULL,
    unique_key VARBINARY(255) NOT NULL,
    job_id     BINARY(16)     NOT NULL,
    PRIMARY KEY (queue, unique_key)
) ENGINE = InnoDB;

-- One row a job that was given up: with all that it takes to try it again.
CREATE TABLE IF NOT EXISTS dblock_queue_dead (
    job_id       BINARY(16)     NOT NULL PRIMARY KEY,
    queue        VARBINARY(255) NOT NULL,
    kind         VARBINARY(255) NOT NULL,
    priority     SMALLINT       NOT NULL,
    attempt      SMALLINT       NOT NULL,
    max_attempts SMALLINT       NOT NULL,
    enqueued_at  DATETIME(6)    NOT NULL,
    died_at      DATETIME(6)    NOT NULL DEFAULT (ADDTIME(UTC_TIMESTAMP(6), 0)),
    unique_key   VARBINARY(255),
    group_key    VARBINARY(255),
    group_most   INT,
    last_error   MEDIUMBLOB     NOT NULL,
    payload      MEDIUMBLOB     NOT NULL,
    KEY dblock_queue_dead_when (queue, died_at, job_id)
) ENGINE = InnoDB;

-- One row a job that has ended, where they are kept. It is no table of partitions: to make and drop those takes rights that a service
-- does not have. Old days are deleted along the key. outcome: 1 finished, 2 cancelled, 3 given up.
CREATE TABLE IF NOT EXISTS dblock_queue_history (
    day         DATE           NOT NULL, -- in UTC
    job_id      BINARY(16)     NOT NULL,
    queue       VARBINARY(255) NOT NULL,
    kind        VARBINARY(255) NOT NULL,
    priority    SMALLINT       NOT NULL,
    attempt     SMALLINT       NOT NULL,
    outcome     SMALLINT       NOT NULL,
    enqueued_at DATETIME(6)    NOT NULL,
    finished_at DATETIME(6)    NOT NULL DEFAULT (ADDTIME(UTC_TIMESTAMP(6), 0)),
    payload     MEDIUMBLOB,
    PRIMARY KEY (day, job_id)
) ENGINE = InnoDB;

-- +goose Down
DROP TABLE IF EXISTS dblock_queue_history;
DROP TABLE IF EXISTS dblock_queue_dead;
DROP TABLE IF EXISTS dblock_queue_unique;
DROP TABLE IF EXISTS dblock_queue_blocked;
DROP TABLE IF EXISTS dblock_queue_key;
DROP TABLE IF EXISTS dblock_queue_cancel;
DROP TABLE IF EXISTS dblock_queue_claim;
DROP TABLE IF EXISTS dblock_queue_scheduled;
DROP TABLE IF EXISTS dblock_queue_ready;
DROP TABLE IF EXISTS dblock_queue_job;
DROP TABLE IF EXISTS dblock_queue;
