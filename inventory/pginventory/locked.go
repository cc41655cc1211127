package pginventory

// Rows that this transaction has locked are written where they stand (ctid): a join by their keys may be planned to read the whole
// table once for each. The look-ups are those of single keys, which LIMIT keeps from becoming a join. They have to be locked by an
// earlier statement: a row that was waited for stands elsewhere than where this one's snapshot sees it. These are not among the
// queries, as sqlc knows no ctid.

const takeStock = `
UPDATE dblock_stock s
SET available = s.available - n.qty
FROM (
    SELECT at.row_at, a.qty
    FROM ROWS FROM (unnest($1::text[]), unnest($2::int[]), unnest($3::bigint[])) AS a (sku, bucket, qty)
    CROSS JOIN LATERAL (SELECT l.ctid AS row_at FROM dblock_stock l WHERE l.sku = a.sku AND l.bucket = a.bucket LIMIT 1) at
) n
WHERE s.ctid = n.row_at`

const countQuotas = `
UPDATE dblock_quota q
SET used = q.used + n.qty, most = n.most
FROM (
    SELECT at.row_at, a.qty, a.most
    FROM ROWS FROM (unnest($1::text[]), unnest($2::text[]), unnest($3::bigint[]), unnest($4::bigint[])) AS a (sku, buyer, qty, most)
    CROSS JOIN LATERAL (SELECT l.ctid AS row_at FROM dblock_quota l WHERE l.sku = a.sku AND l.buyer = a.buyer LIMIT 1) at
) n
WHERE q.ctid = n.row_at`

const uncountQuotas = `
UPDATE dblock_quota q
SET used = greatest(0, q.used - n.qty)
FROM (
    SELECT at.row_at, a.qty
    FROM ROWS FROM (unnest($1::text[]), unnest($2::text[]), unnest($3::bigint[])) AS a (sku, buyer, qty)
    CROSS JOIN LATERAL (SELECT l.ctid AS row_at FROM dblock_quota l WHERE l.sku = a.sku AND l.buyer = a.buyer LIMIT 1) at
) n
WHERE q.ctid = n.row_at`

// setReservations sets all lines of each.
const setReservations = `
UPDATE dblock_reservation r
SET state = n.state, expires_at = CASE WHEN n.hold_us > 0 THEN clock_timestamp() + n.hold_us * interval '1 microsecond' END
FROM (
    SELECT at.row_at, a.state, a.hold_us
    FROM ROWS FROM (unnest($1::text[]), unnest($2::smallint[]), unnest($3::bigint[])) AS a (reservation_key, state, hold_us)
    CROSS JOIN LATERAL (
        SELECT l.ctid AS row_at FROM dblock_reservation l WHERE l.reservation_key = a.reservation_key LIMIT 1000
    ) at
) n
WHERE r.ctid = n.row_at`
