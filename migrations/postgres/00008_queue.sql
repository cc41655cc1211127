-- +goose Up
-- One row a queue that somebody has said something about: paused_at is since when nobody takes jobs from it. A queue without
-- a row is not paused.
CREATE TABLE dblock_queue (
    queue     text COLLATE "C" NOT NULL PRIMARY KEY,
    paused_at timestamptz
);

-- One row a job, from when it is enqueued until it has ended. The id is its client's: random, and it grows with time. A job that
-- does well is written once and deleted once; only one that failed, or whose worker died, is updated. No index but the key, and
-- no foreign key: where a job stands is in one of the tables below. attempt counts the attempts that have ended.
CREATE TABLE dblock_queue_job (
    job_id       uuid             NOT NULL PRIMARY KEY,
    queue        text COLLATE "C" NOT NULL,
    kind         text COLLATE "C" NOT NULL,
    priority     smallint         NOT NULL,
    attempt      smallint         NOT NULL DEFAULT 0,
    max_attempts smallint         NOT NULL,
    enqueued_at  timestamptz      NOT NULL DEFAULT clock_timestamp(),
    unique_key   text COLLATE "C",          -- its row is in dblock_queue_unique; null: none
    group_key    text COLLATE "C",          -- its row is in dblock_queue_key, unless it waits for its time; null: none
    group_most   int,                       -- how many of the group there may be at once
    last_error   text,                      -- of the attempt that ended last; null: none has failed
    payload      bytea            NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_insert_threshold = -1);

-- One row a job that can be worked on now, in the order in which they are taken: the key is that order. Rows are inserted and
-- deleted, never updated, and there is nothing to pass over in it: jobs for later, and such as wait for others, are elsewhere.
CREATE TABLE dblock_queue_ready (
    queue    text COLLATE "C" NOT NULL,
    priority smallint         NOT NULL, -- the lowest comes first
    ready_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    job_id   uuid             NOT NULL,
    PRIMARY KEY (queue, priority, ready_at, job_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_insert_threshold = -1,
        autovacuum_vacuum_cost_delay = 0);

-- One row a job for later: delayed, snoozed, or to be tried again. With a group_key it has yet to be admitted by its group when its
-- time comes; without one it is ready then.
CREATE TABLE dblock_queue_scheduled (
    run_at    timestamptz      NOT NULL,
    job_id    uuid             NOT NULL,
    queue     text COLLATE "C" NOT NULL,
    priority  smallint         NOT NULL,
    group_key text COLLATE "C",
    PRIMARY KEY (run_at, job_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_insert_threshold = -1);

-- One row a batch of jobs that a worker has taken: the fence. Whoever ends a job proves that this row is still there. The id is the
-- worker's own, drawn before the statement is sent. job_ids are those of the batch that were not given up since; those that are
-- done have no row in dblock_queue_job any more.
CREATE TABLE dblock_queue_claim (
    claim_id   uuid             NOT NULL PRIMARY KEY,
    member_id  uuid             NOT NULL, -- whose heartbeat keeps it: with the member's row it is void
    queue      text COLLATE "C" NOT NULL,
    claimed_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    job_ids    uuid[]           NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_insert_threshold = -1,
        autovacuum_vacuum_cost_delay = 0);

-- One row a job that somebody wants a worker to stop.
CREATE TABLE dblock_queue_cancel (
    member_id uuid        NOT NULL,
    job_id    uuid        NOT NULL,
    asked_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (member_id, job_id)
);

-- One row a group of jobs that share an ordering or a concurrency key, while there are any. taken jobs of it are admitted: ready,
-- claimed, or to be tried again; the others are in dblock_queue_blocked, in the order of seq. Whoever changes either has this row locked.
CREATE TABLE dblock_queue_key (
    queue     text COLLATE "C" NOT NULL,
    group_key text COLLATE "C" NOT NULL,
    most      int              NOT NULL, -- how many may be admitted at once; 1 keeps their order
    taken     int              NOT NULL,
    next_seq  bigint           NOT NULL DEFAULT 1,
    PRIMARY KEY (queue, group_key),
    CONSTRAINT dblock_queue_key_taken CHECK (taken >= 0 AND most > 0)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- One row a job that waits for others of its group.
CREATE TABLE dblock_queue_blocked (
    queue     text COLLATE "C" NOT NULL,
    group_key text COLLATE "C" NOT NULL,
    seq       bigint           NOT NULL,
    job_id    uuid             NOT NULL,
    priority  smallint         NOT NULL,
    PRIMARY KEY (queue, group_key, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_insert_threshold = -1);

-- One row a unique key that is taken: by a job that has not ended.
CREATE TABLE dblock_queue_unique (
    queue      text COLLATE "C" NOT NULL,
    unique_key text COLLATE "C" NOT NULL,
    job_id     uuid             NOT NULL,
    PRIMARY KEY (queue, unique_key)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_insert_threshold = -1);

-- One row a job that was given up: with all that it takes to try it again.
CREATE TABLE dblock_queue_dead (
    job_id       uuid             NOT NULL PRIMARY KEY,
    queue        text COLLATE "C" NOT NULL,
    kind         text COLLATE "C" NOT NULL,
    priority     smallint         NOT NULL,
    attempt      smallint         NOT NULL,
    max_attempts smallint         NOT NULL,
    enqueued_at  timestamptz      NOT NULL,
    died_at      timestamptz      NOT NULL DEFAULT clock_timestamp(),
    unique_key   text COLLATE "C",
    group_key    text COLLATE "C",
    group_most   int,
    last_error   text             NOT NULL,
    payload      bytea            NOT NULL
);
CREATE INDEX dblock_queue_dead_when ON dblock_queue_dead (queue, died_at, job_id);

-- One row a job that has ended, where they are kept. It is no table of partitions: to make and drop those takes rights that a service
-- does not have. Old days are deleted along the key. outcome: 1 finished, 2 cancelled, 3 given up.
CREATE TABLE dblock_queue_history (
    day         date             NOT NULL, -- in UTC
    job_id      uuid             NOT NULL,
    queue       text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    priority    smallint         NOT NULL,
    attempt     smallint         NOT NULL,
    outcome     smallint         NOT NULL,
    enqueued_at timestamptz      NOT NULL,
    finished_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    payload     bytea,
    PRIMARY KEY (day, job_id)
);

-- +goose Down
DROP TABLE dblock_queue_history;
DROP TABLE dblock_queue_dead;
DROP TABLE dblock_queue_unique;
DROP TABLE dblock_queue_blocked;
DROP TABLE dblock_queue_key;
DROP TABLE dblock_queue_cancel;
DROP TABLE dblock_queue_claim;
DROP TABLE dblock_queue_scheduled;
DROP TABLE dblock_queue_ready;
DROP TABLE dblock_queue_job;
DROP TABLE dblock_queue;
