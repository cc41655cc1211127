package inventory

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// catalogue is a driver with many SKUs, of which "lost" has wrong stock and "counted" wrong quotas.
type catalogue struct {
	driver.Driver
	repairs []string // SKUs, in the order of the transactions that repair them
}

func (*catalogue) Caps() driver.Caps { return driver.Caps{} }

func (*catalogue) Failure(error) driver.Failure { return driver.Failure{} }

func (*catalogue) Balances(context.Context, []string) ([]driver.Balance, error) {
	return []driver.Balance{
		{SKU: "counted", Available: 2, Restocked: 2}, {SKU: "empty"}, {SKU: "lost", Available: 1, Restocked: 2},
		{SKU: "right", Available: 1, Sold: 3, Restocked: 4},
	}, nil
}

func (*catalogue) WrongQuotas(context.Context, []string) ([]string, error) {
	return []string{"counted"}, nil
}

func (c *catalogue) Adjust(_ context.Context, fn func(driver.AdjustTx) (bool, error)) error {
	_, err := fn(catalogueTx{c: c})
	return err
}

type catalogueTx struct {
	driver.AdjustTx
	c *catalogue
}

func (t catalogueTx) LockStock(_ context.Context, sku string, _ bool) ([]driver.Bucket, error) {
	t.c.repairs = append(t.c.repairs, sku)
	return []driver.Bucket{{}}, nil
}

func (catalogueTx) Balance(context.Context, string) (driver.Balance, error) {
	return driver.Balance{}, nil
}

func (catalogueTx) QuotaDrifts(context.Context, string) ([]driver.Count, error) { return nil, nil }

// TestRepairLocksOnlyWhatIsWrong: an SKU with right books is neither locked nor read again.
func TestRepairLocksOnlyWhatIsWrong(t *testing.T) {
	t.Parallel()
	c := &catalogue{}
	s, err := functions{}.NewStore(Options{}, func() (driver.Driver, error) { return c, nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"counted", "lost"}; !slices.Equal(c.repairs, want) {
		t.Errorf("repaired %q, want %q", c.repairs, want)
	}
}

// forgetful is a driver of which one SKU is wrong. Its first repair is committed without a reply.
type forgetful struct {
	catalogue
	repaired bool
}

func (*forgetful) Failure(error) driver.Failure { return driver.Failure{Class: sqlerr.Unresolved} }

func (f *forgetful) Adjust(ctx context.Context, fn func(driver.AdjustTx) (bool, error)) error {
	commit, err := fn(forgetfulTx{f: f})
	if err == nil && commit && !f.repaired {
		f.repaired = true
		return errLost
	}
	return err
}

type forgetfulTx struct {
	driver.AdjustTx
	f *forgetful
}

func (forgetfulTx) LockStock(context.Context, string, bool) ([]driver.Bucket, error) {
	return []driver.Bucket{{}}, nil
}

func (t forgetfulTx) Balance(_ context.Context, sku string) (driver.Balance, error) {
	if t.f.repaired || sku != "lost" {
		return driver.Balance{SKU: sku}, nil
	}
	return driver.Balance{SKU: sku, Available: 1, Restocked: 2}, nil
}

func (forgetfulTx) AddStock(context.Context, []driver.Units) error { return nil }

func (forgetfulTx) QuotaDrifts(context.Context, string) ([]driver.Count, error) { return nil, nil }

// TestARepairWithoutAReplyIsReported: the second attempt finds nothing wrong any more.
func TestARepairWithoutAReplyIsReported(t *testing.T) {
	t.Parallel()
	s, err := functions{}.NewStore(Options{}, func() (driver.Driver, error) { return &forgetful{}, nil })
	if err != nil {
		t.Fatal(err)
	}
	repairs, err := s.Repair(t.Context())
	if err != nil || len(repairs) != 1 || repairs[0].Moved != 1 || repairs[0].Before.SKU != "lost" {
		t.Errorf("got %+v, %v", repairs, err)
	}
}

// losesReplies is a driver whose adjustments are committed without a reply.
type losesReplies struct{ driver.Driver }

func (losesReplies) Caps() driver.Caps { return driver.Caps{} }

func (losesReplies) Failure(error) driver.Failure { return driver.Failure{Class: sqlerr.Unresolved} }

func (losesReplies) Adjust(context.Context, func(driver.AdjustTx) (bool, error)) error {
	return errLost
}

// TestARestockWithoutAReplyIsForSale: its units may have come in.
func TestARestockWithoutAReplyIsForSale(t *testing.T) {
	t.Parallel()
	o, err := Options{SoldOutTTL: time.Second, Timeout: minTimeout}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(losesReplies{}, o)
	s.cache.noteSoldOut(s.cache.begin(), "sale")
	want := order{Request: req("k", "sale", 1)}
	if _, soldOut := s.cache.soldOut(&want, time.Now()); !soldOut {
		t.Fatal("the SKU is not known to be sold out")
	}
	if _, err := s.Restock(t.Context(), Adjustment{ID: "1", SKU: "sale", Delta: 5}); !errors.Is(err, dblock.ErrOutcomeUnknown) {
		t.Errorf("Restock: %v", err)
	}
	if _, soldOut := s.cache.soldOut(&want, time.Now()); soldOut {
		t.Error("the SKU counts as sold out after a Restock")
	}
}
