package mysqlinventory

import "github.com/dblock-go/dblock/inventory/internal/driver"

// There is no statement here that writes orders and takes stock: a batch is always a transaction of
// several, which locks the stock first and decides.
var (
	together driver.SellTogether
	sellNew  driver.SellNew
)
