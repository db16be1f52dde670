// The peer: a no-op over github.com/florianl/go-nfqueue, as its pages describe it, tuned like the
// others: GSO, the same copy range and queue length, a forced receive buffer, no ENOBUFS.
//
//	peer COPY_BYTES LENGTH BUFFER_BYTES     says "bound" on stderr, and runs until it is killed
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
	queue, err := nfqueue.Open(&nfqueue.Config{
		NfQueue:      0,
		MaxPacketLen: uint32(number(1)),
		MaxQueueLen:  uint32(number(2)),
		Copymode:     nfqueue.NfQnlCopyPacket,
		Flags:        nfqueue.NfQaCfgFlagGSO,
	})
	die(err)
	die(queue.Con.SetReadBuffer(number(3)))
	raw, err := queue.Con.SyscallConn()
	die(err)
	die(raw.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, number(3)/2)
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
