-- +goose Up
-- One row a SKU (and bucket: a row of its own that shares the load of one SKU; 0 is the only one
-- until stock is spread). available is the hot column: it must never stand in an index, and the
-- low fillfactor leaves room on the page, so that every sale is a HOT update.
CREATE TABLE dblock_stock (
    sku       text COLLATE "C" NOT NULL,
    bucket    int              NOT NULL DEFAULT 0,
    available bigint           NOT NULL,
    epoch     bigint           NOT NULL DEFAULT 1, -- grows with each restock
    PRIMARY KEY (sku, bucket),
    CONSTRAINT dblock_stock_not_negative CHECK (available >= 0)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- One row a line of an order; a single reservation is line 0. The key is the caller's and makes
-- the order idempotent. No foreign key to the stock: its row lock would stand on the hot row.
-- state: 1 held, 2 sold, 3 cancelled, 4 expired, 5 refused.
CREATE TABLE dblock_reservation (
    reservation_key text COLLATE "C" NOT NULL,
    line            int              NOT NULL DEFAULT 0,
    sku             text COLLATE "C" NOT NULL,
    bucket          int              NOT NULL DEFAULT 0,
    buyer           text COLLATE "C" NOT NULL,
    qty             bigint           NOT NULL,
    state           smallint         NOT NULL,
    expires_at      timestamptz,
    created_at      timestamptz      NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (reservation_key, line),
    CONSTRAINT dblock_reservation_qty CHECK (qty > 0),
    CONSTRAINT dblock_reservation_state CHECK (state BETWEEN 1 AND 5)
);

-- One row a change of stock that is not a sale: the other half of the ledger. The id is the
-- caller's and makes the change idempotent.
CREATE TABLE dblock_adjustment (
    adjustment_id text COLLATE "C" NOT NULL PRIMARY KEY,
    sku           text COLLATE "C" NOT NULL,
    delta         bigint           NOT NULL,
    created_at    timestamptz      NOT NULL DEFAULT clock_timestamp()
);

-- +goose Down
DROP TABLE dblock_adjustment;
DROP TABLE dblock_reservation;
DROP TABLE dblock_stock;
