-- +goose Up
-- limited: the units count against the buyer's quota. (Of a refused reservation it says that the quota was why.) What takes
-- no stock has bucket -1. A key that was cancelled before it was reserved has an empty sku.
ALTER TABLE dblock_reservation ADD COLUMN limited boolean NOT NULL DEFAULT false;
CREATE INDEX dblock_reservation_due ON dblock_reservation (expires_at) WHERE state = 1;
CREATE INDEX dblock_reservation_sku ON dblock_reservation (sku);

-- One row a buyer and SKU: how many units that are limited the buyer holds or has bought, and how many it might when it last
-- took some. That check is what refuses a batch as a whole.
CREATE TABLE dblock_quota (
    sku   text COLLATE "C" NOT NULL,
    buyer text COLLATE "C" NOT NULL,
    used  bigint           NOT NULL,
    most  bigint           NOT NULL,
    PRIMARY KEY (sku, buyer),
    CONSTRAINT dblock_quota_used CHECK (used BETWEEN 0 AND most)
) WITH (fillfactor = 70);

-- +goose Down
DROP TABLE dblock_quota;
DROP INDEX dblock_reservation_sku;
DROP INDEX dblock_reservation_due;
ALTER TABLE dblock_reservation DROP COLUMN limited;
