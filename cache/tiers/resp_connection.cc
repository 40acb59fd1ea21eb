// See resp_connection.h.
#include "cache/tiers/resp_connection.h"

#include <fmt/format.h>
#include <hiredis/hiredis.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include "base/check.h"

namespace invar::cache {
namespace {

// hiredis builds replies through these; one that answers null ends the reading with an error.
void* CreateText(const redisReadTask* const task, char* const text, const size_t bytes) {
  const auto kind = task->type == REDIS_REPLY_ERROR ? RespReply::Kind::kError : RespReply::Kind::kText;
  return new RespReply{.kind = kind, .text = std::string(text, bytes), .number = 0};
}
void* RefuseArray(const redisReadTask*, int) { return nullptr; }
void* CreateNumber(const redisReadTask*, const long long number) {
  return new RespReply{.kind = RespReply::Kind::kNumber, .text = {}, .number = number};
}
void* CreateNothing(const redisReadTask*) { return new RespReply; }
void FreeReply(void* const reply) { delete static_cast<RespReply*>(reply); }

redisReplyObjectFunctions kFunctions = {CreateText, RefuseArray, CreateNumber, CreateNothing, FreeReply};

}  // namespace

RespConnection::RespConnection(std::unique_ptr<ByteStream> stream)
    : stream_(std::move(stream)), reader_(redisReaderCreateWithFunctions(&kFunctions), redisReaderFree) {
  Check(reader_ != nullptr, "hiredis gives a reader");
  reader_->maxbuf = static_cast<size_t>(kRespReplyBytesMax);  // What it may keep between replies.
}

RespConnection::~RespConnection() = default;

Status RespConnection::Send(const std::span<const std::string_view> words, const TimeNs deadline) {
  std::vector<const char*> begins;
  std::vector<size_t> bytes;
  for (const std::string_view word : words) {
    begins.push_back(word.data());
    bytes.push_back(word.size());
  }
  char* command = nullptr;
  const int command_bytes =
      redisFormatCommandArgv(&command, static_cast<int>(words.size()), begins.data(), bytes.data());
  Check(command_bytes > 0, "hiredis writes a command");
  const std::unique_ptr<char, void (*)(char*)> owner(command, redisFreeCommand);
  Status sent = stream_->WriteAll(std::as_bytes(std::span(command, static_cast<size_t>(command_bytes))), deadline);
  is_dead_ = is_dead_ || !sent.ok();
  ++owed_;
  return sent;
}

StatusOr<RespReply> RespConnection::Receive(const TimeNs deadline) {
  Check(owed_ > 0, "a reply is owed");
  std::array<std::byte, size_t{64} << 10> buffer;
  for (;;) {
    void* object = nullptr;
    if (redisReaderGetReply(reader_.get(), &object) != REDIS_OK) {
      is_dead_ = true;
      return Unavailable("remote: the server's answer is not of the Redis protocol");
    }
    if (object != nullptr) {
      const std::unique_ptr<RespReply> reply(static_cast<RespReply*>(object));
      --owed_;
      return std::move(*reply);
    }
    if (static_cast<int64_t>(reader_->len) > kRespReplyBytesMax) {
      is_dead_ = true;
      return Unavailable(fmt::format("remote: an answer of more than {} bytes", kRespReplyBytesMax));
    }
    const StatusOr<size_t> got = stream_->ReadSome(buffer, deadline);
    if (!got.ok()) {
      is_dead_ = true;
      return got.status();
    }
    if (redisReaderFeed(reader_.get(), reinterpret_cast<const char*>(buffer.data()), *got) != REDIS_OK) {
      is_dead_ = true;
      return Unavailable("remote: no memory for an answer");
    }
  }
}

Status StatusOfErrorReply(const RespReply& reply) {
  // The server's words, as far as they fit a log line.
  std::string text = reply.text.substr(0, 200);
  std::replace_if(
      text.begin(), text.end(), [](const unsigned char c) { return std::isprint(c) == 0; }, '?');
  std::string message = fmt::format("remote: the server refuses: {}", text);
  const auto begins = [&](const std::string_view word) { return reply.text.starts_with(word); };
  if (begins("OOM")) return ResourceExhausted(std::move(message));
  if (begins("NOAUTH") || begins("WRONGPASS") || begins("NOPERM") || begins("ERR AUTH") ||
      begins("ERR invalid password")) {
    return Status(StatusCode::kPermissionDenied, std::move(message));
  }
  // Under our names lies something that we never write.
  if (begins("WRONGTYPE")) return DataLoss(std::move(message));
  return Unavailable(std::move(message));
}

}  // namespace invar::cache
