package driver

// Describe makes a new *optimistic.Table[V, DB] the description of a table, whose statements are
// those of an Driver[DB]. version is an optimistic.Version[V]. Package optimistic sets it at
// initialization; package link, which can name these types, is for its callers.
var Describe func(table, e any, name, key string, version any) error
