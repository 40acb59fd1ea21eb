// identity (32 bytes), pass and windows (i32 each), the sums, SHA-256 of all that.
#include "tools/calibrate/progress_file.h"

#include <cstring>
#include <filesystem>
#include <utility>

#include "base/file.h"

namespace invar::calibrate {
namespace {

int64_t BytesOf(const std::span<const std::span<double>> sums) {
  int64_t bytes = 2 * sizeof(Digest) + sizeof(Done);
  for (const std::span<double> sum : sums) bytes += static_cast<int64_t>(sum.size_bytes());
  return bytes;
}

}  // namespace

Done ProgressFile::Load(const std::span<const std::span<double>> sums) const {
  const int64_t wanted = BytesOf(sums);
  const StatusOr<std::string> bytes = ReadFile(path_, wanted);
  if (!bytes.ok() || std::cmp_not_equal(bytes->size(), wanted)) return {};
  const std::string_view body = std::string_view(*bytes).substr(0, bytes->size() - sizeof(Digest));
  const Digest digest = Sha256(body);
  if (std::memcmp(digest.data(), bytes->data() + body.size(), digest.size()) != 0 ||
      std::memcmp(identity_.data(), body.data(), identity_.size()) != 0)
    return {};
  size_t at = sizeof(Digest);
  const auto take = [&](void* const to, const size_t size) {
    std::memcpy(to, body.data() + at, size);
    at += size;
  };
  Done done;
  take(&done, sizeof(done));
  for (const std::span<double> sum : sums) take(sum.data(), sum.size_bytes());
  return done;
}

Status ProgressFile::Save(const Done& done, const std::span<const std::span<double>> sums) const {
  std::string body(reinterpret_cast<const char*>(identity_.data()), identity_.size());
  body.append(reinterpret_cast<const char*>(&done), sizeof(done));
  for (const std::span<double> sum : sums) body.append(reinterpret_cast<const char*>(sum.data()), sum.size_bytes());
  const Digest digest = Sha256(body);
  body.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  StatusOr<AtomicFile> file = AtomicFile::Create(path_);
  if (!file.ok()) return file.status();
  if (Status s = file->Append(body); !s.ok()) return s;
  return file->Commit();
}

void ProgressFile::Remove() const {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace invar::calibrate
