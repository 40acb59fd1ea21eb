// The remote store: records on a server of the Redis/Valkey protocol that instances share.
//
//   PREFIX:r:NAME    head of a record: sizes, the MAC of every chunk, the caller's header, a MAC over all of it
//   PREFIX:c:MAC     one chunk of a payload; its name is its content's MAC, so that two instances that write the same
//                    record write the same chunks, and never mix two payloads
//
//   PREFIX:e:MAC     the era of all spaces, of those that begin alike, or of one: random bytes, made by the first who
//   puts a
//                    record there and made anew by who drops it
//
// Chunks go first, the head last: a record is there with all of its chunks, or not at all. All entries expire. A chunk
// that the server has evicted makes the whole record absent.
// A head names the eras in which it was put, and is there only as long as they last: so a drop is one entry, whatever
// it voids and whoever put it. Eras outlive the heads that name them; one that the server has evicted voids its heads
// too. A record that several instances add to (TierRecord::merge) is replaced only where it is still what was read.
// Nothing from the server is believed before its MAC (record_mac.h) is right: a wrong one is DATA_LOSS, counted, and
// the entry is deleted. An instance with another secret or of another model does not even meet our entries: their names
// differ.
#include <fmt/format.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "cache/tiers/byte_stream.h"
#include "cache/tiers/drop_log.h"
#include "cache/tiers/record_mac.h"
#include "cache/tiers/resp_connection.h"
#include "cache/tiers/stores.h"

namespace invar::cache {
namespace {

// Small enough that one reply is no burden for a server with one thread, large enough for the network's full rate.
constexpr int64_t kChunkBytes = int64_t{1} << 20;
// Requests sent ahead of their replies: keeps the line busy over a round trip.
constexpr int64_t kWindow = 4;
constexpr std::array<char, 8> kMagic = {'I', 'N', 'V', 'R', 'M', 'T', '0', '2'};

using Era = std::array<char, 16>;  // All zeros: none.
// Of all spaces, of those that share their first half, of one.
constexpr std::array<size_t, 3> kEraBytes = {0, std::tuple_size_v<TierSpace> / 2, std::tuple_size_v<TierSpace>};
using Eras = std::array<Era, kEraBytes.size()>;

// The spaces of level `level` that `space` belongs to.
TierSpaces LevelOf(const TierSpace& space, const size_t level) {
  TierSpaces spaces{.space = {}, .bytes = kEraBytes[level]};
  std::copy_n(space.begin(), spaces.bytes, spaces.space.begin());
  return spaces;
}

Era NewEra() {
  Era era;
  Check(RAND_bytes(reinterpret_cast<unsigned char*>(era.data()), static_cast<int>(era.size())) == 1, "random bytes");
  return era;
}
std::string_view TextOf(const Era& era) { return {era.data(), era.size()}; }

// SET if the entry is still what was read ("": nothing). 1: done.
constexpr std::string_view kReplaceScript =
    "local v = redis.call('GET', KEYS[1]) or '' "
    "if v ~= ARGV[1] then return 0 end "
    "redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) return 1";
// Others who add to the same record at the same time are as many as instances that end requests in the same page.
constexpr int kMergeTries = 32;

// Start of a head; then a MAC a chunk, the caller's header, and the MAC over all before it.
struct HeadStart {
  std::array<char, 8> magic;
  int64_t header_bytes;
  int64_t payload_bytes;
  TierSpace space;
  Eras eras;
};
static_assert(sizeof(HeadStart) == 104);
constexpr int64_t kMacBytes = sizeof(Mac);

int64_t ChunksOf(const int64_t payload_bytes) { return (payload_bytes + kChunkBytes - 1) / kChunkBytes; }
int64_t HeadBytes(const int64_t header_bytes, const int64_t payload_bytes) {
  return static_cast<int64_t>(sizeof(HeadStart)) + ChunksOf(payload_bytes) * kMacBytes + header_bytes + kMacBytes;
}
static_assert((kTierPayloadBytesMax / kChunkBytes + 2) * kMacBytes + kTierHeaderBytesMax + 256 < kRespReplyBytesMax);

struct Head {
  TierRecord record;
  Eras eras{};
  std::vector<Mac> chunks;
};

std::string WriteHead(const RecordMac& mac, const TierRecord& record, const Eras& eras,
                      const std::vector<Mac>& chunks) {
  const HeadStart start{.magic = kMagic,
                        .header_bytes = static_cast<int64_t>(record.header.size()),
                        .payload_bytes = record.payload_bytes,
                        .space = record.space,
                        .eras = eras};
  std::string out(reinterpret_cast<const char*>(&start), sizeof(start));
  out.append(reinterpret_cast<const char*>(chunks.data()), chunks.size() * sizeof(Mac));
  out += record.header;
  const Mac seal = mac.OfHead(record.key, std::as_bytes(std::span(out)));
  out.append(reinterpret_cast<const char*>(seal.data()), seal.size());
  return out;
}

// Errors: DATA_LOSS.
StatusOr<Head> ReadHead(const RecordMac& mac, const TierKey& key, const std::string_view text) {
  if (text.size() < sizeof(HeadStart) + sizeof(Mac)) return DataLoss("remote: an entry is cut short");
  const std::string_view sealed = text.substr(0, text.size() - sizeof(Mac));
  Mac seal;
  std::memcpy(seal.data(), text.data() + sealed.size(), seal.size());
  if (!EqualConstantTime(seal, mac.OfHead(key, std::as_bytes(std::span(sealed))))) {
    return DataLoss("remote: the MAC of an entry is wrong: it was not written by this deployment, or was changed");
  }
  // From here on it is our own word; the checks are for versions to come.
  HeadStart start;
  std::memcpy(&start, sealed.data(), sizeof(start));
  if (start.magic != kMagic || start.header_bytes < 0 || start.header_bytes > kTierHeaderBytesMax ||
      start.payload_bytes < 0 || start.payload_bytes > kTierPayloadBytesMax ||
      HeadBytes(start.header_bytes, start.payload_bytes) != static_cast<int64_t>(text.size())) {
    return DataLoss("remote: an entry of another version of Invar");
  }
  Head head;
  head.chunks.resize(static_cast<size_t>(ChunksOf(start.payload_bytes)));
  std::memcpy(head.chunks.data(), sealed.data() + sizeof(start), head.chunks.size() * sizeof(Mac));
  head.record = {.key = key,
                 .space = start.space,
                 .header = std::string(sealed.substr(sealed.size() - static_cast<size_t>(start.header_bytes))),
                 .payload_bytes = start.payload_bytes};
  head.eras = start.eras;
  return head;
}

class RespStore final : public TierStore {
 public:
  RespStore(RemoteOptions options, std::shared_ptr<TlsContext> tls, const Clock& clock)
      : options_(std::move(options)),
        ttl_text_(std::to_string(options_.ttl_ms)),
        era_ttl_text_(std::to_string(2 * options_.ttl_ms)),
        mac_(options_.secret, options_.store_id),
        tls_(std::move(tls)),
        clock_(clock) {}

  std::string_view name() const override { return "remote"; }
  std::string title() const override { return "the remote tier at " + options_.address; }
  bool is_server() const override { return true; }
  std::vector<TierRecord> Inventory() override { return {}; }

  StatusOr<std::vector<TierRecord>> Find(const std::span<const TierKey> keys, TierTransfer& call) override {
    std::vector<Head> heads;
    Status found = WithConnection(call, [&](RespConnection& connection, const TimeNs deadline) {
      std::vector<TierKey> damaged_keys;
      Status first;  // Of bad luck with one entry; the rest still counts.
      size_t asked = 0;
      for (size_t answered = 0; answered < keys.size(); ++answered) {
        for (; asked < keys.size() && connection.owed() < kWindow; ++asked) {
          if (Status sent = Ask(connection, "GET", HeadName(keys[asked]), deadline); !sent.ok()) return sent;
        }
        StatusOr<RespReply> reply = connection.Receive(deadline);
        if (!reply.ok()) return reply.status();
        if (reply->kind == RespReply::Kind::kNothing) continue;
        StatusOr<Head> head = HeadOf(*reply, keys[answered]);
        if (head.ok()) {
          heads.push_back(*std::move(head));
        } else if (head.status().code() == StatusCode::kDataLoss) {
          damaged_keys.push_back(keys[answered]);
        } else if (first.ok()) {
          first = head.status();
        }
      }
      for (const TierKey& key : damaged_keys) {
        if (Status deleted = DeleteDamaged(connection, key, deadline); !deleted.ok()) return deleted;
      }
      if (Status judged = EraseVoid(connection, heads, deadline); !judged.ok()) return judged;
      return first;
    });
    if (!found.ok()) return found;
    std::vector<TierRecord> records;
    for (Head& head : heads) records.push_back(std::move(head.record));
    return records;
  }

  Status Put(const TierRecord& record, TierTransfer& payload) override {
    return WithConnection(payload, [&](RespConnection& connection, const TimeNs deadline) {
      Eras eras;
      if (Status read = MakeEras(connection, record.space, deadline, eras); !read.ok()) return read;
      // A drop of ours is noted before it is sent: where it is not, these eras are those before it.
      if (IsVoid(record.space, payload.sequence())) return DroppedMeanwhile();
      const int64_t chunks = ChunksOf(record.payload_bytes);
      std::vector<Mac> macs(static_cast<size_t>(chunks));
      std::string buffer(static_cast<size_t>(std::min(kChunkBytes, record.payload_bytes)), '\0');
      Status refused;  // The first refusal ends the sending; what is owed is still received.
      for (int64_t chunk = 0; chunk < chunks && refused.ok(); ++chunk) {
        const int64_t offset = chunk * kChunkBytes;
        const std::span<char> part =
            std::span(buffer).first(static_cast<size_t>(std::min(kChunkBytes, record.payload_bytes - offset)));
        if (!payload.CopyFromPayload(offset, std::as_writable_bytes(part))) return CallEnded();
        Mac& mac = macs[static_cast<size_t>(chunk)];
        mac = mac_.OfChunk(record.key, chunk, std::as_bytes(part));
        if (Status sent = Set(connection, ChunkName(mac), {part.data(), part.size()}, ttl_text_, deadline);
            !sent.ok()) {
          return sent;
        }
        if (Status received = ReceiveOks(connection, kWindow - 1, deadline, refused); !received.ok()) return received;
      }
      if (Status received = ReceiveOks(connection, 0, deadline, refused); !received.ok()) return received;
      if (!refused.ok()) return refused;
      if (record.merge != nullptr) return Merge(connection, record, eras, deadline);
      const std::string head = WriteHead(mac_, record, eras, macs);
      if (Status sent = Set(connection, HeadName(record.key), head, ttl_text_, deadline); !sent.ok()) return sent;
      if (Status received = ReceiveOks(connection, 0, deadline, refused); !received.ok()) return received;
      return refused;
    });
  }

  StatusOr<std::string> Get(const TierKey& key, TierTransfer& sink) override {
    std::string header;
    Status got = WithConnection(sink, [&](RespConnection& connection, const TimeNs deadline) {
      if (Status sent = Ask(connection, "GET", HeadName(key), deadline); !sent.ok()) return sent;
      StatusOr<RespReply> reply = connection.Receive(deadline);
      if (!reply.ok()) return reply.status();
      if (reply->kind == RespReply::Kind::kNothing) return NotFound("remote: no such record");
      StatusOr<Head> head = HeadOf(*reply, key);
      if (head.ok()) {
        const StatusOr<bool> is_current = IsCurrent(connection, *head, deadline);
        if (!is_current.ok()) return is_current.status();
        if (!*is_current) head = NotFound("remote: the record was dropped");
      }
      Status read = head.ok() ? ReadChunks(connection, *head, sink, deadline) : head.status();
      // An incomplete record would be asked for in vain again and again.
      const bool is_useless = read.code() == StatusCode::kDataLoss || read.code() == StatusCode::kNotFound;
      if (is_useless && connection.owed() == 0) {
        const bool damaged = read.code() == StatusCode::kDataLoss;
        Status deleted = damaged ? DeleteDamaged(connection, key, deadline) : Delete(connection, key, deadline);
        if (!deleted.ok()) Logger("cache")->warn("a useless entry stays: {}", deleted.message());
      }
      if (read.ok()) header = std::move(head->record.header);
      return read;
    });
    if (!got.ok()) return got;
    return header;
  }

  Status Drop(const TierSpaces& of, TierTransfer& call) override {
    Check(std::ranges::find(kEraBytes, of.bytes) != kEraBytes.end(), "spaces are dropped all, by halves or one",
          of.bytes);
    {
      const MutexLock lock(mu_);
      drops_.Add(of, call.sequence());
    }
    return WithConnection(call, [&](RespConnection& connection, const TimeNs deadline) {
      const Era era = NewEra();
      if (Status sent = Set(connection, EraName(of), TextOf(era), era_ttl_text_, deadline); !sent.ok()) return sent;
      Status refused;
      Status received = ReceiveOks(connection, 0, deadline, refused);
      return received.ok() ? refused : received;
    });
  }

  TimeNs keeps_for() const override { return options_.ttl_ms * 1'000'000; }

  TierContents Contents() const override {
    const MutexLock lock(mu_);
    TierContents contents;
    contents.damaged = damaged_;
    return contents;
  }

 private:
  using ConnectionPtr = std::unique_ptr<RespConnection>;

  std::string HeadName(const TierKey& key) const { return options_.key_prefix + ":r:" + ToHex(mac_.OfName(key)); }
  std::string EraName(const TierSpaces& spaces) const {
    return options_.key_prefix + ":e:" + ToHex(mac_.OfSpaces(spaces));
  }
  bool IsVoid(const TierSpace& space, const uint64_t sequence) const {
    const MutexLock lock(mu_);
    return drops_.Voids(space, sequence);
  }
  std::string ChunkName(const Mac& mac) const { return options_.key_prefix + ":c:" + ToHex(mac); }

  // Runs `work` on a connection, or says why there is none.
  template <typename Work>
  Status WithConnection(TierTransfer& call, const Work& work) {
    const TimeNs deadline = std::min(call.deadline(), clock_.Now() + options_.io_timeout);
    ConnectionPtr connection;
    {
      const MutexLock lock(mu_);
      if (!idle_.empty()) {
        connection = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    // The server may have closed it meanwhile.
    if (connection != nullptr && !connection->IsReusable()) connection.reset();
    Status status;
    if (connection == nullptr) {
      StatusOr<ConnectionPtr> made = Connect(deadline);
      if (made.ok()) {
        connection = *std::move(made);
      } else {
        status = made.status();
      }
    }
    if (status.ok()) status = work(*connection, deadline);
    if (connection == nullptr || !connection->IsReusable()) return status;
    const MutexLock lock(mu_);
    idle_.push_back(std::move(connection));
    return status;
  }

  StatusOr<ConnectionPtr> Connect(const TimeNs deadline) const {
    StatusOr<std::unique_ptr<ByteStream>> stream = ConnectSocket(options_.address, deadline, clock_);
    if (!stream.ok()) return stream.status();
    if (tls_ != nullptr) {
      std::string host = options_.address.substr(0, options_.address.rfind(':'));
      if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
      stream = tls_->Wrap(*std::move(stream), host, deadline);
      if (!stream.ok()) return stream.status();
    }
    auto connection = std::make_unique<RespConnection>(*std::move(stream));
    if (!options_.password.empty()) {
      const std::array<std::string_view, 3> words = {"AUTH", options_.username, options_.password};
      const std::array<std::string_view, 2> without_user = {"AUTH", options_.password};
      Status sent =
          options_.username.empty() ? connection->Send(without_user, deadline) : connection->Send(words, deadline);
      if (!sent.ok()) return sent;
      const StatusOr<RespReply> reply = connection->Receive(deadline);
      if (!reply.ok()) return reply.status();
      if (reply->kind == RespReply::Kind::kError) {
        // Without the server's words: some repeat what they were sent.
        return Status(StatusCode::kPermissionDenied,
                      fmt::format("remote: {} refuses the user name or the password", options_.address));
      }
    }
    return connection;
  }

  static Status Ask(RespConnection& connection, const std::string_view command, const std::string& name,
                    const TimeNs deadline) {
    const std::array<std::string_view, 2> words = {command, name};
    return connection.Send(words, deadline);
  }

  static Status Set(RespConnection& connection, const std::string& name, const std::string_view value,
                    const std::string_view ttl, const TimeNs deadline) {
    const std::array<std::string_view, 5> words = {"SET", name, value, "PX", ttl};
    return connection.Send(words, deadline);
  }

  // The eras of `space` as they are; zeros for one that is not there.
  Status ReadEras(RespConnection& connection, const TierSpace& space, const TimeNs deadline, Eras& eras) const {
    for (size_t level = 0; level < eras.size(); ++level) {
      if (Status sent = Ask(connection, "GET", EraName(LevelOf(space, level)), deadline); !sent.ok()) return sent;
    }
    return ReceiveEras(connection, /*replies_each=*/1, deadline, eras);
  }
  // As ReadEras; begins those that are not there, and prolongs all.
  Status MakeEras(RespConnection& connection, const TierSpace& space, const TimeNs deadline, Eras& eras) const {
    for (size_t level = 0; level < eras.size(); ++level) {
      const std::string name = EraName(LevelOf(space, level));
      const Era era = NewEra();
      const std::array<std::string_view, 6> begin = {"SET", name, TextOf(era), "PX", era_ttl_text_, "NX"};
      const std::array<std::string_view, 3> prolong = {"PEXPIRE", name, era_ttl_text_};
      if (Status sent = connection.Send(begin, deadline); !sent.ok()) return sent;
      if (Status sent = connection.Send(prolong, deadline); !sent.ok()) return sent;
      if (Status sent = Ask(connection, "GET", name, deadline); !sent.ok()) return sent;
    }
    return ReceiveEras(connection, /*replies_each=*/3, deadline, eras);
  }
  // Of each level the last of its replies is the era.
  static Status ReceiveEras(RespConnection& connection, const int replies_each, const TimeNs deadline, Eras& eras) {
    Status refused;
    for (Era& era : eras) {
      era = {};
      for (int i = 0; i < replies_each; ++i) {
        const StatusOr<RespReply> reply = connection.Receive(deadline);
        if (!reply.ok()) return reply.status();
        if (reply->kind == RespReply::Kind::kError && refused.ok()) refused = StatusOfErrorReply(*reply);
        if (i + 1 < replies_each || reply->kind != RespReply::Kind::kText || reply->text.size() != era.size()) continue;
        std::copy(reply->text.begin(), reply->text.end(), era.begin());
      }
    }
    return refused;
  }

  // Whether nobody has dropped the record since it was put.
  StatusOr<bool> IsCurrent(RespConnection& connection, const Head& head, const TimeNs deadline) const {
    Eras eras;
    if (Status read = ReadEras(connection, head.record.space, deadline, eras); !read.ok()) return read;
    return eras == head.eras && std::ranges::find(eras, Era{}) == eras.end();
  }

  // Takes out what was dropped since it was put. Most heads are of one space, which is asked for once.
  Status EraseVoid(RespConnection& connection, std::vector<Head>& heads, const TimeNs deadline) const {
    std::vector<Head> current;
    std::optional<std::pair<TierSpace, Eras>> known;
    for (Head& head : heads) {
      if (!known.has_value() || known->first != head.record.space) {
        known.emplace(head.record.space, Eras{});
        if (Status read = ReadEras(connection, head.record.space, deadline, known->second); !read.ok()) return read;
      }
      const bool lasts = std::ranges::find(known->second, Era{}) == known->second.end();
      if (lasts && known->second == head.eras) current.push_back(std::move(head));
    }
    heads = std::move(current);
    return OkStatus();
  }

  // Adds `record` to what is there, again where others came between reading and writing.
  Status Merge(RespConnection& connection, const TierRecord& record, const Eras& eras, const TimeNs deadline) const {
    const std::string name = HeadName(record.key);
    for (int i = 0; i < kMergeTries; ++i) {
      if (Status sent = Ask(connection, "GET", name, deadline); !sent.ok()) return sent;
      const StatusOr<RespReply> there = connection.Receive(deadline);
      if (!there.ok()) return there.status();
      if (there->kind == RespReply::Kind::kError) return StatusOfErrorReply(*there);
      TierRecord merged = record;
      const StatusOr<Head> head = ReadHead(mac_, record.key, there->text);
      // What is damaged or was dropped is replaced.
      if (head.ok() && head->eras == eras) merged.header = record.merge(head->record.header, record.header);
      const std::string text = WriteHead(mac_, merged, eras, {});
      const std::array<std::string_view, 7> words = {"EVAL", kReplaceScript, "1", name, there->text, text, ttl_text_};
      if (Status sent = connection.Send(words, deadline); !sent.ok()) return sent;
      const StatusOr<RespReply> replaced = connection.Receive(deadline);
      if (!replaced.ok()) return replaced.status();
      if (replaced->kind == RespReply::Kind::kError) return StatusOfErrorReply(*replaced);
      if (replaced->number == 1) return OkStatus();
    }
    return Unavailable("remote: others keep changing the record");
  }

  // Receives until at most `owed` replies are owed; the first error reply goes to `refused`.
  static Status ReceiveOks(RespConnection& connection, const int64_t owed, const TimeNs deadline, Status& refused) {
    while (connection.owed() > owed) {
      const StatusOr<RespReply> reply = connection.Receive(deadline);
      if (!reply.ok()) return reply.status();
      if (reply->kind == RespReply::Kind::kError && refused.ok()) refused = StatusOfErrorReply(*reply);
    }
    return OkStatus();
  }

  StatusOr<Head> HeadOf(const RespReply& reply, const TierKey& key) const {
    if (reply.kind == RespReply::Kind::kError) return StatusOfErrorReply(reply);
    return ReadHead(mac_, key, reply.text);
  }

  // Receives every reply it asked for, also after a bad one, so that the connection lives on.
  Status ReadChunks(RespConnection& connection, const Head& head, TierTransfer& sink, const TimeNs deadline) const {
    if (head.record.payload_bytes != sink.bytes()) {
      return DataLoss(fmt::format("remote: {} payload bytes are stored, {} were asked for", head.record.payload_bytes,
                                  sink.bytes()));
    }
    Status bad;
    size_t asked = 0;
    for (size_t answered = 0; answered < head.chunks.size(); ++answered) {
      for (; bad.ok() && asked < head.chunks.size() && connection.owed() < kWindow; ++asked) {
        Status sent = Ask(connection, "GET", ChunkName(head.chunks[asked]), deadline);
        if (!sent.ok()) return sent;
      }
      if (connection.owed() == 0) break;
      const StatusOr<RespReply> reply = connection.Receive(deadline);
      if (!reply.ok()) return reply.status();
      if (!bad.ok()) continue;
      const auto chunk = static_cast<int64_t>(answered);
      const std::span<const std::byte> bytes = std::as_bytes(std::span(reply->text));
      const int64_t wanted = std::min(kChunkBytes, head.record.payload_bytes - chunk * kChunkBytes);
      if (reply->kind == RespReply::Kind::kNothing) {
        bad = NotFound("remote: a chunk of the record has expired or was evicted");
      } else if (reply->kind == RespReply::Kind::kError) {
        bad = StatusOfErrorReply(*reply);
      } else if (static_cast<int64_t>(bytes.size()) != wanted ||
                 !EqualConstantTime(mac_.OfChunk(head.record.key, chunk, bytes), head.chunks[answered])) {
        bad = DataLoss(fmt::format("remote: the MAC of chunk {} is wrong", chunk));
      } else if (!sink.CopyToSink(chunk * kChunkBytes, bytes)) {
        return CallEnded();
      }
    }
    return bad;
  }

  Status Delete(RespConnection& connection, const TierKey& key, const TimeNs deadline) const {
    if (Status sent = Ask(connection, "DEL", HeadName(key), deadline); !sent.ok()) return sent;
    Status refused;
    Status received = ReceiveOks(connection, 0, deadline, refused);
    return received.ok() ? refused : received;
  }

  Status DeleteDamaged(RespConnection& connection, const TierKey& key, const TimeNs deadline) {
    {
      const MutexLock lock(mu_);
      ++damaged_;
    }
    return Delete(connection, key, deadline);
  }

  // Set at construction.
  const RemoteOptions options_;
  const std::string ttl_text_;
  const std::string era_ttl_text_;  // Longer than that of any head that names it.
  const RecordMac mac_;
  const std::shared_ptr<TlsContext> tls_;  // Null: plain.
  const Clock& clock_;

  mutable Mutex mu_;
  std::vector<ConnectionPtr> idle_ GUARDED_BY(mu_);
  DropLog drops_ GUARDED_BY(mu_);
  int64_t damaged_ GUARDED_BY(mu_) = 0;
};

}  // namespace

StatusOr<std::unique_ptr<TierStore>> MakeRespStore(RemoteOptions options, const Clock& clock) {
  constexpr size_t kSecretBytesMin = 32;
  if (options.secret.size() < kSecretBytesMin) {
    return InvalidArgument(
        fmt::format("the HMAC secret has {} bytes, at least {} are wanted", options.secret.size(), kSecretBytesMin));
  }
  std::shared_ptr<TlsContext> tls;
  if (options.tls) {
    StatusOr<std::shared_ptr<TlsContext>> made = TlsContext::Make(*options.tls);
    if (!made.ok()) return made.status();
    tls = *std::move(made);
  }
  return StatusOr<std::unique_ptr<TierStore>>(std::make_unique<RespStore>(std::move(options), std::move(tls), clock));
}

}  // namespace invar::cache
