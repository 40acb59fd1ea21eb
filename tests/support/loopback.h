// Raw sockets to a port of this process.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

namespace invar {

// Connects `fd`, a TCP socket, to `port` on 127.0.0.1. False: refused.
inline bool ConnectLoopback(const int fd, const int port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  return connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
}

}  // namespace invar
