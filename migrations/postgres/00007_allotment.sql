-- +goose Up
-- Buckets from 1048576 on are allotments: units that a process has taken for itself. Those of one that is gone are looked for
-- by this index. available is not in it, so that sales stay HOT.
CREATE INDEX dblock_stock_allotted ON dblock_stock (bucket) WHERE bucket >= 1048576;

-- +goose Down
DROP INDEX dblock_stock_allotted;
