// A no-op over github.com/florianl/go-nfqueue, as its pages describe it, tuned like the
// others: the same copy range and queue length, a forced receive buffer, no ENOBUFS.
//
//	accept QUEUE COPY_BYTES LENGTH BUFFER_BYTES GSO     GSO is 1 or 0; says "bound" on stderr,
//	and runs until it is killed
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"github.com/florianl/go-nfqueue"
	"github.com/mdlayher/netlink"
)

func main() {
	number := func(at int) int {
		n, err := strconv.Atoi(os.Args[at])
		die(err)
		return n
	}
	var flags uint32
	if number(5) == 1 {
		flags = nfqueue.NfQaCfgFlagGSO
	}
	queue, err := nfqueue.Open(&nfqueue.Config{
		NfQueue:      uint16(number(1)),
		MaxPacketLen: uint32(number(2)),
		MaxQueueLen:  uint32(number(3)),
		Copymode:     nfqueue.NfQnlCopyPacket,
		Flags:        flags,
	})
	die(err)
	die(queue.Con.SetReadBuffer(number(4)))
	raw, err := queue.Con.SyscallConn()
	die(err)
	die(raw.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, number(4)/2)
	}))
	die(err)
	die(queue.Con.SetOption(netlink.NoENOBUFS, true))
	accept := func(packet nfqueue.Attribute) int {
		die(queue.SetVerdict(*packet.PacketID, nfqueue.NfAccept))
		return 0
	}
	failed := func(err error) int {
		die(err)
		return 1
	}
	die(queue.RegisterWithErrorFunc(context.Background(), accept, failed))
	fmt.Fprintln(os.Stderr, "bound")
	select {}
}

func die(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
