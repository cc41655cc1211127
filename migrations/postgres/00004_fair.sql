-- +goose Up
-- One row a call that waits for a key first come, first served. Whoever gives the key back makes it that of the lowest ticket whose member is
-- alive, with what stands here.
CREATE TABLE dblock_ticket (
    lease_key text COLLATE "C" NOT NULL,
    ticket    bigint           NOT NULL GENERATED ALWAYS AS IDENTITY,
    handle    uuid             NOT NULL, -- the acquisition that it will be
    member_id uuid             NOT NULL, -- who waits
    detached  boolean          NOT NULL, -- whether it will last without its member
    hold_us   bigint           NOT NULL, -- for so long it will be held, in microseconds; 0: for as long as it takes
    label     text             NOT NULL,
    data      bytea,
    PRIMARY KEY (lease_key, ticket)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- +goose Down
DROP TABLE dblock_ticket;
