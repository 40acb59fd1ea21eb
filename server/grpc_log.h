// What gRPC has to say, as lines of our log: its own would stand between the JSON lines in a form of their own.
#pragma once

namespace invar::server {

// Process-wide. Call once, before anything of gRPC is used. Its errors become warnings: most are a peer's (a failed TLS
// handshake), and whoever may connect may cause them.
void RouteGrpcLogs();

}  // namespace invar::server
