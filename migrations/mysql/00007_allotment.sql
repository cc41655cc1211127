-- +goose Up
-- Buckets from 1048576 on are allotments: units that a process has taken for itself. Those of one that is gone are looked for
-- by this index.
ALTER TABLE dblock_stock ADD INDEX dblock_stock_bucket (bucket);

-- +goose Down
ALTER TABLE dblock_stock DROP KEY dblock_stock_bucket;
