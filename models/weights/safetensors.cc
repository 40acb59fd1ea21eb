// Reading checks each claim of the header against the file's real size before using it; sums and products are checked
// for overflow, since 2^63 elements are a legal thing to write in JSON.
#include "models/weights/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "models/text/strict_json.h"

namespace invar::models {
namespace {

using Json = nlohmann::json;

constexpr int64_t kHeaderBytesMax = 100'000'000;  // The format's own limit.

struct DTypeRow {
  const char* name;
  int64_t bytes;
  std::optional<kernels::DType> dtype;
};
constexpr DTypeRow kDTypes[] = {{"F32", 4, kernels::DType::kF32}, {"BF16", 2, kernels::DType::kBf16},
                                {"F16", 2, kernels::DType::kF16}, {"F64", 8, std::nullopt},
                                {"I64", 8, std::nullopt},         {"I32", 4, std::nullopt},
                                {"I16", 2, std::nullopt},         {"I8", 1, std::nullopt},
                                {"U64", 8, std::nullopt},         {"U32", 4, std::nullopt},
                                {"U16", 2, std::nullopt},         {"U8", 1, std::nullopt},
                                {"BOOL", 1, std::nullopt},        {"F8_E4M3", 1, std::nullopt},
                                {"F8_E5M2", 1, std::nullopt}};

const DTypeRow* FindDType(const std::string& name) {
  for (const DTypeRow& row : kDTypes) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

Status TensorLies(const std::string& path, const std::string& tensor, const std::string& wanted,
                  const std::string& found) {
  return DataLoss(fmt::format("{}: tensor \"{}\": wanted {}, found {}", path, tensor, wanted, found));
}

// A non-negative integer that fits int64; -1 otherwise.
int64_t SizeOf(const Json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    return number <= static_cast<uint64_t>(INT64_MAX) ? static_cast<int64_t>(number) : -1;
  }
  return value.is_number_integer() ? std::max<int64_t>(value.get<int64_t>(), -1) : -1;
}

// Header text of the mapped file.
StatusOr<std::string_view> HeaderText(const std::string& path, const std::span<const std::byte> file) {
  if (file.size() < 8) {
    return DataLoss(fmt::format("{}: wanted 8 bytes of header length, found a file of {} bytes", path, file.size()));
  }
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);  // Little endian, as every machine we run on.
  if (length > static_cast<uint64_t>(kHeaderBytesMax)) {
    return DataLoss(
        fmt::format("{}: wanted a header of at most {} bytes, found length {}", path, kHeaderBytesMax, length));
  }
  if (length < 2 || length > file.size() - 8) {
    return DataLoss(
        fmt::format("{}: wanted a header inside the file of {} bytes, found length {}", path, file.size(), length));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, length);
  if (text.front() != '{') {
    return DataLoss(fmt::format("{}: wanted a header that starts with '{{', found byte 0x{:02x}", path,
                                static_cast<unsigned>(static_cast<unsigned char>(text.front()))));
  }
  return text;
}

// One header entry; `data` is the file behind the header.
StatusOr<TensorInfo> ReadEntry(const std::string& path, const std::string& name, const Json& entry,
                               const std::span<const std::byte> data) {
  if (!entry.is_object()) return TensorLies(path, name, "an object", entry.type_name());
  for (const auto& [key, value] : entry.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return TensorLies(path, name, "dtype, shape and data_offsets only", "key \"" + key + "\"");
    }
  }
  TensorInfo info;
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) return TensorLies(path, name, "a dtype", "none");
  info.dtype_name = dtype->get<std::string>();
  const DTypeRow* row = FindDType(info.dtype_name);
  if (row == nullptr) return TensorLies(path, name, "a dtype of the format", info.dtype_name);
  info.dtype = row->dtype;

  const auto shape = entry.find("shape");
  if (shape == entry.end() || !shape->is_array()) return TensorLies(path, name, "a shape", "none");
  int64_t bytes = row->bytes;
  for (const Json& dim : *shape) {
    const int64_t size = SizeOf(dim);
    if (size <= 0) return TensorLies(path, name, "positive dimensions", "shape " + shape->dump());
    if (__builtin_mul_overflow(bytes, size, &bytes)) {
      return TensorLies(path, name, "fewer than 2^63 bytes", "shape " + shape->dump());
    }
    info.shape.push_back(size);
  }

  const auto offsets = entry.find("data_offsets");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2) {
    return TensorLies(path, name, "data_offsets [begin, end]", offsets == entry.end() ? "none" : offsets->dump());
  }
  const int64_t begin = SizeOf((*offsets)[0]);
  const int64_t end = SizeOf((*offsets)[1]);
  if (begin < 0 || end < begin || static_cast<uint64_t>(end) > data.size()) {
    return TensorLies(path, name, fmt::format("0 <= begin <= end <= {} (bytes of data)", data.size()),
                      "data_offsets " + offsets->dump());
  }
  if (end - begin != bytes) {
    return TensorLies(path, name, fmt::format("{} bytes for {} {}", bytes, info.dtype_name, ShapeText(info.shape)),
                      fmt::format("{} bytes in data_offsets", end - begin));
  }
  info.data = data.data() + begin;
  info.bytes = bytes;
  return info;
}

// No holes, no overlap, nothing left at the end.
Status CheckCoverage(const std::string& path, const std::map<std::string, TensorInfo>& tensors,
                     const std::span<const std::byte> data) {
  std::vector<std::pair<int64_t, const std::string*>> begins;
  for (const auto& [name, info] : tensors) begins.emplace_back(info.data - data.data(), &name);
  std::sort(begins.begin(), begins.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  int64_t expected = 0;
  for (const auto& [begin, name] : begins) {
    if (begin != expected) {
      return TensorLies(path, *name, fmt::format("data from byte {} (no holes, no overlap)", expected),
                        fmt::format("data from byte {}", begin));
    }
    expected = begin + tensors.at(*name).bytes;
  }
  if (expected != static_cast<int64_t>(data.size())) {
    return DataLoss(fmt::format("{}: wanted {} bytes of data as the header says, found {}; after tensor \"{}\"", path,
                                expected, data.size(), begins.empty() ? "" : *begins.back().second));
  }
  return OkStatus();
}

}  // namespace

std::string ShapeText(const std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  StatusOr<FileMap> map = FileMap::Open(path);
  if (!map.ok()) return map.status();
  SafetensorsFile file;
  file.path_ = path;
  file.map_ = *std::move(map);
  const std::span<const std::byte> bytes = file.map_.bytes();
  StatusOr<std::string_view> text = HeaderText(path, bytes);
  if (!text.ok()) return text.status();
  StatusOr<Json> header = ParseStrictJson(*text, path);
  if (!header.ok()) return DataLoss("header of " + header.status().message());
  if (!header->is_object()) return DataLoss(path + ": wanted a JSON object as header, found " + header->type_name());
  const std::span<const std::byte> data = bytes.subspan(8 + text->size());
  for (const auto& [name, entry] : header->items()) {
    if (name == "__metadata__") continue;
    StatusOr<TensorInfo> info = ReadEntry(path, name, entry, data);
    if (!info.ok()) return info.status();
    file.tensors_.emplace(name, *std::move(info));
  }
  if (Status s = CheckCoverage(path, file.tensors_, data); !s.ok()) return s;
  return file;
}

StatusOr<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path, std::vector<Tensor> tensors) {
  nlohmann::ordered_json header;
  std::vector<int64_t> offsets;
  int64_t end = 0;
  for (const Tensor& tensor : tensors) {
    const DTypeRow* row = FindDType(tensor.dtype);
    Check(row != nullptr, "the dtype is one of the format", tensor.dtype);
    int64_t bytes = row->bytes;
    for (const int64_t dim : tensor.shape) bytes *= dim;
    header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {end, end + bytes}}};
    offsets.push_back(end);
    end += bytes;
  }
  offsets.push_back(end);
  std::string text = tensors.empty() ? "{}" : header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // Keeps the data 8-byte aligned.

  StatusOr<AtomicFile> file = AtomicFile::Create(path);
  if (!file.ok()) return file.status();
  SafetensorsWriter writer(*std::move(file));
  const uint64_t length = text.size();
  StatusOr<std::span<std::byte>> memory = writer.file_.MapForWriting(static_cast<int64_t>(8 + length) + end);
  if (!memory.ok()) return memory.status();
  std::memcpy(memory->data(), &length, 8);
  std::memcpy(memory->data() + 8, text.data(), text.size());
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    writer.tensor_bytes_.push_back(memory->subspan(8 + length + static_cast<size_t>(offsets[i]),
                                                   static_cast<size_t>(offsets[i + 1] - offsets[i])));
  }
  return writer;
}

}  // namespace invar::models
