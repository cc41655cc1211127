// Package programs tests dblock with random client programs.
//
// A program is data: processes, their callers, the calls of each caller, and faults of the server.
// A generator draws it from a seed. Real processes run it on a real server and log what they do. A
// checker reads the logs, the server's tables and what the operating system's file locks say. It
// uses no state of dblock.
//
// A program that fails is made smaller while it still fails, and is printed with its seed.
// docs/testing.md shows how to run it again.
package programs
