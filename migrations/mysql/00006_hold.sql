-- +goose Up
-- One row a buyer and SKU: how many units that are limited the buyer holds or has bought, and how many it might when it last
-- took some.
CREATE TABLE IF NOT EXISTS dblock_quota (
    sku   VARBINARY(255) NOT NULL,
    buyer VARBINARY(255) NOT NULL,
    used  BIGINT         NOT NULL,
    most  BIGINT         NOT NULL,
    PRIMARY KEY (sku, buyer),
    CONSTRAINT dblock_quota_used CHECK (used BETWEEN 0 AND most)
) ENGINE = InnoDB;

-- limited: the units count against the buyer's quota. (Of a refused reservation it says that the quota was why.) What takes
-- no stock has bucket -1. A key that was cancelled before it was reserved has an empty sku.
ALTER TABLE dblock_reservation ADD COLUMN limited BOOLEAN NOT NULL DEFAULT false,
    ADD INDEX dblock_reservation_due (expires_at),
    ADD INDEX dblock_reservation_sku (sku);

-- +goose Down
ALTER TABLE dblock_reservation DROP COLUMN limited,
    DROP KEY dblock_reservation_sku,
    DROP KEY dblock_reservation_due;
DROP TABLE IF EXISTS dblock_quota;
