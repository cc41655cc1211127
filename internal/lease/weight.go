package lease

// Batches are bounded by bytes, because a server refuses a statement that is too long, and closes
// the connection on which it arrives. A weight is an upper bound of what a request adds to a
// statement in any driver: text of the statement, numbers, and all bytes as hexadecimal digits.

const (
	// heaviest bounds a statement, whatever the server takes: while a long one is sent and parsed,
	// all others wait.
	heaviest = 4 << 20

	// fixedText is more than a statement has without its requests.
	fixedText = 8 << 10

	acquireText = 768 // what AcquireLeases and Enqueue repeat for each request
	releaseText = 384 // what ReleaseLeases repeats
)

// maxWeight is how much the requests of one statement may weigh.
func (t Traits) maxWeight() int {
	most := heaviest
	if t.MaxStatementBytes > 0 {
		most = min(most, t.MaxStatementBytes)
	}
	return max(most-fixedText, 1)
}

func acquireWeight(a acquisition) int { return acquireText + 2*(len(a.Key)+len(a.Label)+len(a.Data)) }

func releaseWeight(b ReleaseRequest) int { return releaseText + 2*len(b.Key) }
