/*
 * A no-op over libnetfilter_queue and libmnl, as their pages describe it.
 *
 * One packet a read and one verdict a datagram, as in the library's own way of use; tuned like
 * ours: the same copy range and queue length, a forced receive buffer, no ENOBUFS.
 *
 *   accept QUEUE COPY_BYTES LENGTH BUFFER_BYTES GSO     GSO is 1 or 0; says "bound" on stderr, and
 * runs until it is killed
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <libmnl/libmnl.h>
#include <libnetfilter_queue/libnetfilter_queue.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink_queue.h>

static struct mnl_socket *nl;
static uint16_t queue;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void send_message(const struct nlmsghdr *message)
{
	if (mnl_socket_sendto(nl, message, message->nlmsg_len) < 0)
		die("send");
}

static int accept_packet(const struct nlmsghdr *message, void *data)
{
	struct nlattr *attributes[NFQA_MAX + 1] = {};
	struct nfqnl_msg_packet_hdr *header;
	char buffer[256];
	struct nlmsghdr *verdict;

	(void)data;
	if (nfq_nlmsg_parse(message, attributes) < 0 || !attributes[NFQA_PACKET_HDR])
		return MNL_CB_ERROR;
	header = mnl_attr_get_payload(attributes[NFQA_PACKET_HDR]);
	verdict = nfq_nlmsg_put(buffer, NFQNL_MSG_VERDICT, queue);
	nfq_nlmsg_verdict_put(verdict, ntohl(header->packet_id), NF_ACCEPT);
	send_message(verdict);
	return MNL_CB_OK;
}

static void configure(uint32_t copy, uint32_t length, int gso)
{
	char buffer[MNL_SOCKET_BUFFER_SIZE];
	struct nlmsghdr *message;

	message = nfq_nlmsg_put(buffer, NFQNL_MSG_CONFIG, queue);
	nfq_nlmsg_cfg_put_cmd(message, AF_INET, NFQNL_CFG_CMD_BIND);
	send_message(message);
	message = nfq_nlmsg_put(buffer, NFQNL_MSG_CONFIG, queue);
	nfq_nlmsg_cfg_put_params(message, NFQNL_COPY_PACKET, copy);
	nfq_nlmsg_cfg_put_qmaxlen(message, length);
	mnl_attr_put_u32(message, NFQA_CFG_FLAGS, gso ? htonl(NFQA_CFG_F_GSO) : 0);
	mnl_attr_put_u32(message, NFQA_CFG_MASK, htonl(NFQA_CFG_F_GSO));
	send_message(message);
}

int main(int argc, char **argv)
{
	static char buffer[0xffff + 4096];
	unsigned int port;
	int on = 1, bytes;
	ssize_t len;

	if (argc != 6)
		return 2;
	queue = atoi(argv[1]);
	bytes = atoi(argv[4]) / 2;
	nl = mnl_socket_open(NETLINK_NETFILTER);
	if (!nl || mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID) < 0)
		die("open");
	if (setsockopt(mnl_socket_get_fd(nl), SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) <
	    0)
		die("SO_RCVBUFFORCE");
	mnl_socket_setsockopt(nl, NETLINK_NO_ENOBUFS, &on, sizeof(on));
	port = mnl_socket_get_portid(nl);
	configure(atoi(argv[2]), atoi(argv[3]), atoi(argv[5]));
	fputs("bound\n", stderr);
	for (;;) {
		len = mnl_socket_recvfrom(nl, buffer, sizeof(buffer));
		if (len < 0)
			die("receive");
		if (mnl_cb_run(buffer, len, 0, port, accept_packet, NULL) < 0)
			die("read a packet");
	}
}
