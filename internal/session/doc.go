// Package session is the life of locks that a database server itself keeps for a connection: who of this process has
// which, who waits, and what becomes of them when the connection ends. Many locks share a connection, and what many
// callers want at once shares a statement. The statements themselves are the engines'.
package session
