package mysqlinventory

import "github.com/dblock-go/dblock/inventory/internal/engine"

// There is no statement here that writes orders and takes stock: a batch is always a transaction of
// several, which locks the stock first and decides.
var (
	together engine.SellTogether
	sellNew  engine.SellNew
)
