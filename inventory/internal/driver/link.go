package driver

// Inventory has methods of package inventory for its drivers. Package inventory sets it at
// initialization; package link, which can name the types of both, gives it a type.
var Inventory any

// CallerTx is a transaction of the caller's, of whatever driver.
type CallerTx struct{ Tx any }
