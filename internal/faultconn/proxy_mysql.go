package faultconn

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strconv"
)

// Commands of the MySQL protocol.
const (
	comQuit        = 0x01
	comQuery       = 0x03
	comStmtPrepare = 0x16
	comStmtExecute = 0x17
	comStmtLong    = 0x18
	comStmtClose   = 0x19

	capMySQL        = 1 << 0
	capDeprecateEOF = 1 << 24
	capCacheMeta    = 1 << 4 // of MariaDB's extended ones

	moreResults = 0x0008
)

// myLink is one connection to MySQL or MariaDB.
type myLink struct {
	p              *Proxy
	client, server net.Conn
	asked, told    chan []byte // packets with their headers; closed when that side has ended

	noEOF, cached bool // what both sides have agreed on
}

func serveMySQL(p *Proxy, client, server net.Conn) {
	l := &myLink{p: p, client: client, server: server, asked: make(chan []byte), told: make(chan []byte)}
	ended := make(chan struct{})
	readers := make(chan struct{}, 2)
	read := func(from net.Conn, to chan<- []byte) {
		defer func() { readers <- struct{}{} }()
		defer close(to)
		for {
			packet, err := myRead(from)
			if err != nil {
				return
			}
			select {
			case to <- packet:
			case <-ended:
				return
			}
		}
	}
	go read(client, l.asked)
	go read(server, l.told)
	if l.login() {
		for l.command() {
		}
	}
	close(ended)
	_ = client.Close()
	_ = server.Close()
	<-readers
	<-readers
}

// login forwards until the server has let the client in.
func (l *myLink) login() bool {
	if a := l.p.request([]byte("connect")); a != nil && a.Code != "" {
		<-l.told // the greeting
		l.fail(*a, 0)
		return false
	}
	greeting, ok := <-l.told
	if !ok || !l.tell(greeting) {
		return false
	}
	response, ok := <-l.asked
	if !ok || len(response) < 4+32 || !l.ask(response) {
		return false
	}
	caps := binary.LittleEndian.Uint32(response[4:])
	l.noEOF = caps&capDeprecateEOF != 0
	l.cached = caps&capMySQL == 0 && binary.LittleEndian.Uint32(response[4+28:])&capCacheMeta != 0
	for {
		packet, ok := <-l.told
		switch {
		case !ok || !l.tell(packet) || packet[4] == 0xff:
			return false
		case packet[4] == 0x00:
			return true
		case packet[4] == 0x01 && len(packet) == 6 && packet[5] == 3: // the server says more by itself
			continue
		}
		if packet, ok = <-l.asked; !ok || !l.ask(packet) {
			return false
		}
	}
}

// command forwards one command and its answer; false ends the connection.
func (l *myLink) command() bool {
	var packet []byte
	var ok bool
	select {
	case packet, ok = <-l.asked:
	case packet, ok = <-l.told: // unasked
		return ok && l.tell(packet)
	}
	if !ok {
		return false
	}
	switch packet[4] {
	case comQuit, comStmtLong, comStmtClose:
		return l.ask(packet)
	}
	a := l.p.request(packet[5:])
	if a != nil && a.Code != "" {
		return l.refuse(*a, packet)
	}
	answer, ok := l.forward(packet)
	if !ok {
		return false
	}
	if a != nil {
		answer = changed(a.Rows, answer, packet[4])
	}
	for i, p := range answer {
		p[3] = byte(i + 1)
		if !l.tell(p) {
			return false
		}
	}
	return true
}

// refuse answers a command with an error.
func (l *myLink) refuse(a Answer, packet []byte) bool {
	if a.After {
		if _, ok := l.forward(packet); !ok {
			return false
		}
	}
	ends := bytes.EqualFold(packet[5:], []byte("COMMIT")) || bytes.EqualFold(packet[5:], []byte("ROLLBACK"))
	if a.RollsBack || ends && !a.StaysOpen {
		if _, ok := l.forward(myPacket(0, append([]byte{comQuery}, "ROLLBACK"...))); !ok {
			return false
		}
	}
	return l.fail(a, 1) && !a.Fatal
}

// fail sends an error to the client.
func (l *myLink) fail(a Answer, sequence byte) bool {
	number, _ := strconv.ParseUint(a.Code, 10, 16)
	body := binary.LittleEndian.AppendUint16([]byte{0xff}, uint16(number))
	if sequence > 0 {
		body = append(append(body, '#'), a.State...)
	}
	return l.tell(myPacket(sequence, append(body, "replaced by a test"...)))
}

func (l *myLink) tell(packet []byte) bool { _, err := l.client.Write(packet); return err == nil }

func (l *myLink) ask(packet []byte) bool { _, err := l.server.Write(packet); return err == nil }

// next is the server's next packet; false if either side has ended.
func (l *myLink) next() ([]byte, bool) {
	select {
	case packet, ok := <-l.told:
		return packet, ok
	case <-l.asked: // a client sends nothing before it has its answer: it has left
		return nil, false
	}
}

// forward sends a command to the server, and returns the packets of the answer.
func (l *myLink) forward(packet []byte) (answer [][]byte, ok bool) {
	if !l.ask(packet) {
		return nil, false
	}
	for {
		first, ok := l.next()
		if !ok {
			return nil, false
		}
		answer = append(answer, first)
		status := uint16(0)
		switch {
		case first[4] == 0xff:
			return answer, true
		case first[4] == 0x00 && packet[4] == comStmtPrepare:
			return l.definitions(answer, int(binary.LittleEndian.Uint16(first[4+5:])), int(binary.LittleEndian.Uint16(first[4+7:])))
		case first[4] == 0x00:
			status = okStatus(first[4:])
		default:
			columns, n := lenenc(first[4:])
			if !l.cached || first[4+n] == 1 {
				if answer, ok = l.definitions(answer, int(columns)); !ok {
					return nil, false
				}
			} else if !l.noEOF {
				if answer, ok = l.more(answer); !ok {
					return nil, false
				}
			}
			if answer, status, ok = l.rows(answer); !ok {
				return nil, false
			}
		}
		if status&moreResults == 0 {
			return answer, true
		}
	}
}

func (l *myLink) more(answer [][]byte) ([][]byte, bool) {
	packet, ok := l.next()
	return append(answer, packet), ok
}

// definitions reads the given numbers of parameter and column definitions, and the packet that ends
// each list.
func (l *myLink) definitions(answer [][]byte, counts ...int) (_ [][]byte, ok bool) {
	for _, n := range counts {
		if n > 0 && !l.noEOF {
			n++
		}
		for range n {
			if answer, ok = l.more(answer); !ok {
				return nil, false
			}
		}
	}
	return answer, true
}

// rows reads rows and their end.
func (l *myLink) rows(answer [][]byte) (_ [][]byte, status uint16, ok bool) {
	for {
		if answer, ok = l.more(answer); !ok {
			return nil, 0, false
		}
		switch last := answer[len(answer)-1]; {
		case last[4] == 0xff:
			return answer, 0, true
		case isEnd(last) && l.noEOF:
			return answer, okStatus(last[4:]), true
		case isEnd(last):
			return answer, binary.LittleEndian.Uint16(last[7:]), true
		}
	}
}

func isEnd(packet []byte) bool { return packet[4] == 0xfe && len(packet) < 4+0xffffff }

// changed is an answer with other rows.
func changed(rows Rows, answer [][]byte, command byte) [][]byte {
	first := answer[0]
	switch {
	case command == comStmtPrepare || first[4] == 0xff:
		return answer
	case first[4] == 0x00:
		if rows != None {
			return answer
		}
		_, n := lenenc(first[5:])
		_, m := lenenc(first[5+n:])
		return [][]byte{myPacket(1, append([]byte{0, 0, 0}, first[5+n+m:]...))}
	}
	columns, _ := lenenc(first[4:])
	begin := len(answer) - 1
	for begin > 1 && !isEnd(answer[begin-1]) && !isDefinition(answer[begin-1]) {
		begin--
	}
	changed := append([][]byte(nil), answer[:begin]...)
	for _, row := range answer[begin : len(answer)-1] {
		switch rows {
		case Twice:
			changed = append(changed, row, append([]byte(nil), row...))
		case Null:
			changed = append(changed, nulls(int(columns), command))
		}
	}
	return append(changed, answer[len(answer)-1])
}

// isDefinition reports whether a packet is a column and not a row: a column begins with the name of
// the catalog.
func isDefinition(packet []byte) bool { return len(packet) > 8 && string(packet[4:8]) == "\x03def" }

func nulls(columns int, command byte) []byte {
	var body []byte
	if command == comStmtExecute {
		body = append(body, 0)
		columns = (columns + 7 + 2) / 8
	}
	for range columns {
		if command == comStmtExecute {
			body = append(body, 0xff)
		} else {
			body = append(body, 0xfb)
		}
	}
	return myPacket(0, body)
}

// okStatus reads the status of an OK packet.
func okStatus(body []byte) uint16 {
	_, n := lenenc(body[1:])
	_, m := lenenc(body[1+n:])
	return binary.LittleEndian.Uint16(body[1+n+m:])
}

// lenenc reads a number, and how many bytes it has.
func lenenc(b []byte) (value uint64, n int) {
	switch b[0] {
	case 0xfc:
		return uint64(binary.LittleEndian.Uint16(b[1:])), 3
	case 0xfd:
		return uint64(b[1]) | uint64(b[2])<<8 | uint64(b[3])<<16, 4
	case 0xfe:
		return binary.LittleEndian.Uint64(b[1:]), 9
	}
	return uint64(b[0]), 1
}

func myRead(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int(head[0]) | int(head[1])<<8 | int(head[2])<<16
	packet := make([]byte, 4+n)
	copy(packet, head[:])
	_, err := io.ReadFull(r, packet[4:])
	return packet, err
}

func myPacket(sequence byte, body []byte) []byte {
	n := len(body)
	return append([]byte{byte(n), byte(n >> 8), byte(n >> 16), sequence}, body...)
}
