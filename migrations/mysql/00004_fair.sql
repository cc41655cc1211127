-- +goose Up
-- One row a call that waits for a key first come, first served. Whoever gives the key back makes it that of the lowest ticket whose member is
-- alive, with what stands here.
CREATE TABLE IF NOT EXISTS dblock_ticket (
    lease_key VARBINARY(512) NOT NULL,
    ticket    BIGINT         NOT NULL AUTO_INCREMENT,
    handle    BINARY(16)     NOT NULL, -- the acquisition that it will be
    member_id BINARY(16)     NOT NULL, -- who waits
    served    BOOLEAN        NOT NULL DEFAULT false, -- it has the key, or had it
    detached  BOOLEAN        NOT NULL, -- whether it will last without its member
    hold_us   BIGINT         NOT NULL, -- for so long it will be held, in microseconds; 0: for as long as it takes
    label     VARBINARY(255) NOT NULL,
    data      MEDIUMBLOB,
    PRIMARY KEY (lease_key, ticket),
    UNIQUE KEY (ticket)
) ENGINE = InnoDB;

-- +goose Down
DROP TABLE IF EXISTS dblock_ticket;
