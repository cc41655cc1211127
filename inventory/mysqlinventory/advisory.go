package mysqlinventory

import "github.com/dblock-go/dblock/inventory/internal/engine"

// advisory is a way that these databases lack: a lock of GET_LOCK belongs to a session and not to a
// transaction, so it is given up before the commit or kept by a connection that went back to its pool.
var advisory engine.Sell
