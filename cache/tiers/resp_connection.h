// One connection that speaks the Redis/Valkey protocol (RESP2). hiredis writes the commands and reads the replies; the
// bytes travel by a ByteStream, because hiredis' own sockets know neither a deadline per call nor (before 1.0) TLS.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "cache/tiers/byte_stream.h"

struct redisReader;

namespace invar::cache {

// Lists are no kind: no command of ours is answered by one, so that a hostile server cannot make us build one.
struct RespReply {
  enum class Kind { kText, kNumber, kNothing, kError };
  Kind kind = Kind::kNothing;
  std::string text;  // Of kText and kError.
  int64_t number = 0;
};

// A reply above this ends the connection: a chunk or the largest record head, with room.
inline constexpr int64_t kRespReplyBytesMax = int64_t{4} << 20;

// Threads: one at a time.
class RespConnection {
 public:
  explicit RespConnection(std::unique_ptr<ByteStream> stream);
  ~RespConnection();
  RespConnection(const RespConnection&) = delete;
  RespConnection& operator=(const RespConnection&) = delete;

  // Errors: those of ByteStream; UNAVAILABLE for what is no reply. After an error the connection is dead.
  Status Send(std::span<const std::string_view> words, TimeNs deadline);
  StatusOr<RespReply> Receive(TimeNs deadline);

  // Replies that are still to come: with any, the connection cannot be used for something else.
  int64_t owed() const { return owed_; }
  bool IsReusable() { return !is_dead_ && owed_ == 0 && stream_->IsIdle(); }

 private:
  const std::unique_ptr<ByteStream> stream_;
  const std::unique_ptr<redisReader, void (*)(redisReader*)> reader_;
  int64_t owed_ = 0;
  bool is_dead_ = false;
};

// What an error reply means: RESOURCE_EXHAUSTED (memory is full), PERMISSION_DENIED (credentials), DATA_LOSS (an entry
// of another type lies there), UNAVAILABLE (else).
Status StatusOfErrorReply(const RespReply& reply);

}  // namespace invar::cache
