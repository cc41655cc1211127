package inventory

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/orders"
)

// orderFile reads a morning's real trade.
func orderFile(t *testing.T) orders.File {
	t.Helper()
	f := suite.Must(os.Open("../../internal/orders/testdata/online_retail_2010-12-01.csv"))(t) // as seen from a driver
	defer func() { _ = f.Close() }()
	file := suite.Must(orders.Read(f))(t)
	require.Len(t, file.Lines, 999)
	require.Empty(t, file.Bad)
	return file
}

// ReplaysARealOrderFile sends it twice, with half the stock that it takes.
func (tests) ReplaysARealOrderFile(t *testing.T, s *env) {
	lines := orderFile(t).Lines
	s.o.RecordRefusals = true
	store := s.open(t, s.o)
	for _, a := range orders.HalfStock(lines) {
		require.NoError(t, suite.Second(store.Restock(t.Context(), a)))
	}
	replay := func() orders.Report {
		return suite.Must(orders.Replay(t.Context(), store, lines, 64, func() {}))(t)
	}
	first := replay()
	assert.True(t, first.Seen == 0 && first.Accepted > 0 && first.SoldOut > 0 && first.Returned > 0, "%+v", first)
	assert.Equal(t, len(lines), first.Accepted+first.SoldOut+first.Returned)
	before := suite.Must(store.Audit(t.Context()))(t)
	assert.Equal(t, orders.Report{Seen: len(lines)}, replay(), "the second time")
	assert.Equal(t, before, suite.Must(store.Audit(t.Context()))(t), "the second time")
	s.sound(t)
}
