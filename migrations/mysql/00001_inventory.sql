-- +goose Up
-- One row a SKU (and bucket: a row of its own that shares the load of one SKU; 0 is the only one
-- until stock is spread). Keys are bytes: the usual collations would take two keys that differ in
-- case for one. IF NOT EXISTS, because DDL does not roll back here: a migration that was cut off
-- can be run again.
CREATE TABLE IF NOT EXISTS dblock_stock (
    sku       VARBINARY(255) NOT NULL,
    bucket    INT            NOT NULL DEFAULT 0,
    available BIGINT         NOT NULL,
    epoch     BIGINT         NOT NULL DEFAULT 1, -- grows with each restock
    PRIMARY KEY (sku, bucket),
    CONSTRAINT dblock_stock_not_negative CHECK (available >= 0)
) ENGINE = InnoDB;

-- One row a line of an order; a single reservation is line 0. The key is the caller's and makes
-- the order idempotent. No foreign key to the stock: its row lock would stand on the hot row.
-- state: 1 held, 2 sold, 3 cancelled, 4 expired, 5 refused. Times are UTC.
CREATE TABLE IF NOT EXISTS dblock_reservation (
    reservation_key VARBINARY(255) NOT NULL,
    line            INT            NOT NULL DEFAULT 0,
    sku             VARBINARY(255) NOT NULL,
    bucket          INT            NOT NULL DEFAULT 0,
    buyer           VARBINARY(255) NOT NULL,
    qty             BIGINT         NOT NULL,
    state           SMALLINT       NOT NULL,
    expires_at      DATETIME(6),
    created_at      DATETIME(6)    NOT NULL DEFAULT (ADDTIME(UTC_TIMESTAMP(6), 0)),
    PRIMARY KEY (reservation_key, line),
    CONSTRAINT dblock_reservation_qty CHECK (qty > 0),
    CONSTRAINT dblock_reservation_state CHECK (state BETWEEN 1 AND 5)
) ENGINE = InnoDB;

-- One row a change of stock that is not a sale: the other half of the ledger. The id is the
-- caller's and makes the change idempotent.
CREATE TABLE IF NOT EXISTS dblock_adjustment (
    adjustment_id VARBINARY(255) NOT NULL PRIMARY KEY,
    sku           VARBINARY(255) NOT NULL,
    delta         BIGINT         NOT NULL,
    created_at    DATETIME(6)    NOT NULL DEFAULT (ADDTIME(UTC_TIMESTAMP(6), 0))
) ENGINE = InnoDB;

-- +goose Down
DROP TABLE IF EXISTS dblock_adjustment;
DROP TABLE IF EXISTS dblock_reservation;
DROP TABLE IF EXISTS dblock_stock;
