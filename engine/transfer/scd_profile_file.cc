// Writing and reading follow one list of tensors (ForEachTensor), so that they cannot disagree.
#include "engine/transfer/scd_profile_file.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/fingerprint.h"

namespace invar::engine {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMagic = "INVARSCD";
constexpr size_t kFixedBytes = 16;
constexpr size_t kHeaderBytesMax = size_t{64} << 20;
constexpr int64_t kFileBytesMax = int64_t{4} << 30;
constexpr size_t kLayersMax = 1024;
constexpr int64_t kColumnsMax = 1 << 20;

// --- The tensors of a layer, in the order of the file. ---
template <typename Codec, typename Visit>
void VisitCodec(Codec& codec, const std::string& name, const Visit& visit) {
  visit(name + ".encoder.mean", codec.encoder.mean);
  visit(name + ".encoder.matrix", codec.encoder.matrix.values);
  visit(name + ".encoder.sigma", codec.encoder.sigma);
  for (size_t i = 0; i < codec.decoders.size(); ++i) {
    visit(fmt::format("{}.decoders[{}].mean", name, i), codec.decoders[i].mean);
    visit(fmt::format("{}.decoders[{}].matrix", name, i), codec.decoders[i].matrix.values);
  }
}

// Calls visit(name, vector of floats).
template <typename Profile, typename Visit>
void ForEachTensor(Profile& profile, const Visit& visit) {
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    auto& layer = profile.layers[i];
    const std::string name = fmt::format("layers[{}]", i);
    VisitCodec(layer.keys, name + ".keys", visit);
    VisitCodec(layer.values, name + ".values", visit);
    VisitCodec(layer.joint, name + ".joint", visit);
    VisitCodec(layer.inputs, name + ".inputs", visit);
    visit(name + ".states.keys", layer.states.keys.values);
    visit(name + ".states.values", layer.states.values.values);
    visit(name + ".states.gain", layer.states.gain);
  }
}

// --- Header ---
Json ToJson(const ScdSide& side) {
  return {{"fingerprint", side.fingerprint},
          {"numerics", side.numerics_id},
          {"tokenizer", side.tokenizer},
          {"inverse_frequencies", side.inverse_frequencies},
          {"rope_factor", side.rope_factor}};
}

Json ToJson(const ScdCodec& codec) {
  Json decoders = Json::array();
  for (const ScdDecoder& decoder : codec.decoders)
    decoders.push_back({{"rank", decoder.rank}, {"features", decoder.features}});
  return {{"ranks", codec.encoder.ranks()}, {"decoders", std::move(decoders)}};
}

Json ToJson(const ScdLayerShape& s) {
  return {{"recurrent", s.recurrent}, {"kv_heads", s.kv_heads},   {"head_dim", s.head_dim},
          {"heads_k", s.heads_k},     {"heads_v", s.heads_v},     {"dim_k", s.dim_k},
          {"dim_v", s.dim_v},         {"conv_rows", s.conv_rows}, {"conv_dim", s.conv_dim}};
}

Json HeaderOf(const ScdProfile& profile) {
  Json layers = Json::array();
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    const ScdLayerFit& fit = profile.layers[i];
    layers.push_back({{"shape", ToJson(profile.shape.layers[i])},
                      {"keys", ToJson(fit.keys)},
                      {"values", ToJson(fit.values)},
                      {"joint", ToJson(fit.joint)},
                      {"inputs", ToJson(fit.inputs)},
                      {"states", fit.states.heads_v > 0}});
  }
  Json points = Json::array();
  for (size_t i = 0; i < profile.points.size(); ++i) {
    Json plans = Json::array();
    for (const ScdLayerPlan& plan : profile.points[i].layers) {
      plans.push_back({{"mode", ScdModeName(plan.mode)},
                       {"bits", CodeBitsName(plan.bits)},
                       {"rank", plan.rank},
                       {"rank_v", plan.rank_v},
                       {"features", plan.features},
                       {"tail", plan.tail}});
    }
    const ScdQuality& quality = profile.qualities[i];
    points.push_back({{"name", profile.points[i].name},
                      {"kl", quality.kl},
                      {"top1_agreement", quality.top1_agreement},
                      {"attention_cosine", quality.attention_cosine},
                      {"layers", std::move(plans)}});
  }
  return {{"producer", ToJson(profile.producer)}, {"consumer", ToJson(profile.consumer)},
          {"calibration", profile.calibration},   {"hidden", profile.shape.hidden},
          {"layers", std::move(layers)},          {"points", std::move(points)}};
}

// Reads the header with bounds; the first thing that is wrong stays in `status`, with its place.
class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  const Status& status() const { return status_; }
  void Fail(const std::string& field, const std::string& wanted, const std::string& found) {
    if (status_.ok()) status_ = DataLoss(fmt::format("{}: {}: wanted {}, found {}", path_, field, wanted, found));
  }
  const Json& At(const Json& object, const std::string& field, const std::string& key) {
    static const Json kNone;
    if (object.is_object()) {
      if (const auto found = object.find(key); found != object.end()) return *found;
    }
    Fail(field + "." + key, "a value", "none");
    return kNone;
  }
  int64_t Int(const Json& object, const std::string& field, const std::string& key, const int64_t max) {
    const Json& value = At(object, field, key);
    if (value.is_number_integer() && value.get<int64_t>() >= 0 && value.get<int64_t>() <= max)
      return value.get<int64_t>();
    Fail(field + "." + key, fmt::format("an integer in 0..{}", max), value.dump());
    return 0;
  }
  bool Bool(const Json& object, const std::string& field, const std::string& key) {
    const Json& value = At(object, field, key);
    if (value.is_boolean()) return value.get<bool>();
    Fail(field + "." + key, "true or false", value.dump());
    return false;
  }
  double Number(const Json& object, const std::string& field, const std::string& key) {
    const Json& value = At(object, field, key);
    if (value.is_number()) return value.get<double>();
    Fail(field + "." + key, "a number", value.dump());
    return 0.0;
  }
  std::string Text(const Json& object, const std::string& field, const std::string& key) {
    const Json& value = At(object, field, key);
    if (value.is_string()) return value.get<std::string>();
    Fail(field + "." + key, "a text", value.dump());
    return {};
  }
  const Json& List(const Json& object, const std::string& field, const std::string& key, const size_t max) {
    static const Json kEmpty = Json::array();
    const Json& value = At(object, field, key);
    if (value.is_array() && value.size() <= max) return value;
    Fail(field + "." + key, fmt::format("a list of at most {}", max),
         value.is_array() ? fmt::format("{}", value.size()) : value.dump());
    return kEmpty;
  }
  template <size_t N>
  size_t Name(const Json& object, const std::string& field, const std::string& key,
              const std::string_view (&names)[N]) {
    const std::string text = Text(object, field, key);
    for (size_t i = 0; i < N; ++i) {
      if (names[i] == text) return i;
    }
    Fail(field + "." + key, "a known name", text);
    return 0;
  }

 private:
  const std::string path_;
  Status status_;
};

ScdSide ReadSide(Reader& reader, const Json& header, const std::string& key) {
  const Json& json = reader.At(header, "header", key);
  ScdSide side{.fingerprint = reader.Text(json, key, "fingerprint"),
               .numerics_id = reader.Text(json, key, "numerics"),
               .tokenizer = reader.Text(json, key, "tokenizer"),
               .inverse_frequencies = {},
               .rope_factor = reader.Number(json, key, "rope_factor")};
  for (const Json& value : reader.List(json, key, "inverse_frequencies", 4096)) {
    if (!value.is_number()) reader.Fail(key + ".inverse_frequencies", "numbers", value.dump());
    side.inverse_frequencies.push_back(value.is_number() ? value.get<double>() : 0.0);
  }
  return side;
}

ScdLayerShape ReadShape(Reader& reader, const Json& layer, const std::string& field) {
  const Json& json = reader.At(layer, field, "shape");
  const std::string at = field + ".shape";
  const auto number = [&](const char* key) { return static_cast<int32_t>(reader.Int(json, at, key, 1 << 16)); };
  return {.recurrent = reader.Bool(json, at, "recurrent"),
          .kv_heads = number("kv_heads"),
          .head_dim = number("head_dim"),
          .heads_k = number("heads_k"),
          .heads_v = number("heads_v"),
          .dim_k = number("dim_k"),
          .dim_v = number("dim_v"),
          .conv_rows = number("conv_rows"),
          .conv_dim = static_cast<int32_t>(reader.Int(json, at, "conv_dim", kColumnsMax))};
}

void Shape(FloatRows& rows, const int64_t row_count, const int64_t col_count) {
  rows.rows = row_count;
  rows.cols = col_count;
}
// Elements of each tensor, told before any memory is taken: sizes.at(i) of the i-th vector of ForEachTensor.
using Sizes = std::vector<int64_t>;

void ReadCodec(Reader& reader, const Json& layer, const std::string& field, const std::string& key,
               const int64_t inputs, const int64_t outputs, ScdCodec& codec, Sizes& sizes) {
  const Json& json = reader.At(layer, field, key);
  const std::string at = field + "." + key;
  const int64_t ranks = reader.Int(json, at, "ranks", std::min(inputs, outputs));
  const int64_t used_inputs = ranks > 0 ? inputs : 0;
  Shape(codec.encoder.matrix, used_inputs, ranks);
  sizes.insert(sizes.end(), {used_inputs, used_inputs * ranks, ranks});
  for (const Json& one : reader.List(json, at, "decoders", 64)) {
    ScdDecoder decoder{.rank = static_cast<int32_t>(reader.Int(one, at + ".decoders", "rank", ranks)),
                       .features = static_cast<int32_t>(reader.Int(one, at + ".decoders", "features", 1 << 16))};
    if (decoder.rank == 0) reader.Fail(at + ".decoders.rank", "at least 1", "0");
    Shape(decoder.matrix, decoder.rank + decoder.features, outputs);
    sizes.insert(sizes.end(), {outputs, (decoder.rank + decoder.features) * outputs});
    codec.decoders.push_back(std::move(decoder));
  }
}

void ReadLayer(Reader& reader, const Json& json, const std::string& field, const int64_t hidden, ScdLayerShape& shape,
               ScdLayerFit& fit, Sizes& sizes) {
  shape = ReadShape(reader, json, field);
  const int64_t cols = shape.kv_columns();
  if (shape.recurrent ? shape.heads_k == 0 || shape.heads_v % shape.heads_k != 0 || shape.state_floats() == 0
                      : cols == 0)
    reader.Fail(field + ".shape", "heads of a layer", json.dump().substr(0, 200));
  if (!reader.status().ok()) return;
  ReadCodec(reader, json, field, "keys", cols, cols, fit.keys, sizes);
  ReadCodec(reader, json, field, "values", cols, cols, fit.values, sizes);
  ReadCodec(reader, json, field, "joint", hidden, 2 * cols, fit.joint, sizes);
  ReadCodec(reader, json, field, "inputs", hidden, hidden, fit.inputs, sizes);
  const bool has_states = reader.Bool(json, field, "states");
  if (has_states && !shape.recurrent) reader.Fail(field + ".states", "false for attention", "true");
  if (has_states) {
    fit.states.heads_k = shape.heads_k;
    fit.states.heads_v = shape.heads_v;
    fit.states.dim_k = shape.dim_k;
    fit.states.dim_v = shape.dim_v;
    Shape(fit.states.keys, int64_t{shape.heads_k} * shape.dim_k, shape.dim_k);
    Shape(fit.states.values, int64_t{shape.heads_v} * shape.dim_v, shape.dim_v);
  }
  sizes.insert(sizes.end(), {fit.states.keys.rows * fit.states.keys.cols,
                             fit.states.values.rows * fit.states.values.cols, fit.states.heads_v});
}

void ReadPoint(Reader& reader, const Json& json, const std::string& field, ScdProfile& profile) {
  ScdPoint point{.name = reader.Text(json, field, "name"), .layers = {}};
  for (const Json& one : reader.List(json, field, "layers", kLayersMax)) {
    const std::string at = field + ".layers";
    const auto number = [&](const char* key) { return static_cast<int32_t>(reader.Int(one, at, key, 1 << 20)); };
    point.layers.push_back({.mode = static_cast<ScdMode>(reader.Name(one, at, "mode", kScdModeNames)),
                            .bits = static_cast<CodeBits>(reader.Name(one, at, "bits", kCodeBitsNames)),
                            .rank = number("rank"),
                            .rank_v = number("rank_v"),
                            .features = number("features"),
                            .tail = number("tail")});
  }
  profile.qualities.push_back({.kl = reader.Number(json, field, "kl"),
                               .top1_agreement = reader.Number(json, field, "top1_agreement"),
                               .attention_cosine = reader.Number(json, field, "attention_cosine")});
  if (!reader.status().ok()) return;
  if (const Status s = CheckScdPoint(profile, point); !s.ok())
    reader.Fail(field, "a point of this profile", s.message());
  profile.points.push_back(std::move(point));
}

ScdProfile ReadHeader(Reader& reader, const Json& header, Sizes& sizes) {
  ScdProfile profile;
  profile.producer = ReadSide(reader, header, "producer");
  profile.consumer = ReadSide(reader, header, "consumer");
  profile.calibration = reader.Text(header, "header", "calibration");
  profile.shape.hidden = static_cast<int32_t>(reader.Int(header, "header", "hidden", 1 << 17));
  const Json& layers = reader.List(header, "header", "layers", kLayersMax);
  profile.shape.layers.resize(layers.size());
  profile.layers.resize(layers.size());
  for (size_t i = 0; i < layers.size() && reader.status().ok(); ++i) {
    ReadLayer(reader, layers[i], fmt::format("layers[{}]", i), profile.shape.hidden, profile.shape.layers[i],
              profile.layers[i], sizes);
  }
  const Json& points = reader.List(header, "header", "points", 256);
  for (size_t i = 0; i < points.size() && reader.status().ok(); ++i)
    ReadPoint(reader, points[i], fmt::format("points[{}]", i), profile);
  return profile;
}

void AppendU32(std::string& out, const uint32_t value) {
  char bytes[4];
  std::memcpy(bytes, &value, 4);
  out.append(bytes, 4);
}
uint32_t U32At(const std::string_view bytes, const size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, 4);
  return value;
}

}  // namespace

std::string ToScdBytes(const ScdProfile& profile) {
  const std::string header = HeaderOf(profile).dump();
  std::string out(kMagic);
  AppendU32(out, kScdVersion);
  AppendU32(out, static_cast<uint32_t>(header.size()));
  out += header;
  ForEachTensor(profile, [&](const std::string&, const std::vector<float>& values) {
    out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  });
  const Digest digest = Sha256(out);
  out.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  return out;
}

StatusOr<ScdProfile> ParseScd(const std::string_view bytes, const std::string& path) {
  const auto fail = [&](const std::string& field, const std::string& wanted, const std::string& found) {
    return DataLoss(fmt::format("{}: {}: wanted {}, found {}", path, field, wanted, found));
  };
  if (bytes.size() < kFixedBytes + sizeof(Digest))
    return fail("size", fmt::format("at least {} bytes", kFixedBytes + sizeof(Digest)),
                fmt::format("{}", bytes.size()));
  if (!bytes.starts_with(kMagic)) return InvalidArgument(path + ": magic: wanted \"INVARSCD\", found something else");
  if (const uint32_t version = U32At(bytes, 8); version != kScdVersion) {
    return InvalidArgument(
        fmt::format("{}: version: wanted {}, found {}; calibrate again", path, kScdVersion, version));
  }
  const std::string_view body = bytes.substr(0, bytes.size() - sizeof(Digest));
  Digest stored;
  std::memcpy(stored.data(), bytes.data() + body.size(), stored.size());
  if (const Digest digest = Sha256(body); digest != stored)
    return fail("checksum", ToHex(stored), ToHex(digest) + "; the file is damaged or cut off");
  const size_t header_bytes = U32At(bytes, 12);
  if (header_bytes > kHeaderBytesMax || header_bytes > body.size() - kFixedBytes)
    return fail("header bytes", fmt::format("at most {}", body.size() - kFixedBytes), fmt::format("{}", header_bytes));
  const Json header = Json::parse(body.substr(kFixedBytes, header_bytes), nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) return fail("header", "a JSON object", "something else");
  Reader reader(path);
  Sizes sizes;
  ScdProfile profile = ReadHeader(reader, header, sizes);
  if (!reader.status().ok()) return reader.status();
  const std::string_view payload = body.substr(kFixedBytes + header_bytes);
  int64_t floats = 0;
  for (const int64_t size : sizes) floats += size;
  if (std::cmp_not_equal(floats * 4, payload.size()))
    return fail("tensors", fmt::format("{} bytes", floats * 4), fmt::format("{}", payload.size()));
  size_t index = 0;
  size_t at = 0;
  ForEachTensor(profile, [&](const std::string& name, std::vector<float>& values) {
    values.resize(static_cast<size_t>(sizes[index++]));
    std::memcpy(values.data(), payload.data() + at, values.size() * sizeof(float));
    at += values.size() * sizeof(float);
    const bool sizes_of_codes = name.ends_with(".sigma");
    for (const float value : values) {
      if (std::isfinite(value) && (value > 0.0F || !sizes_of_codes)) continue;
      reader.Fail(name, sizes_of_codes ? "numbers above 0" : "finite numbers", fmt::format("{}", value));
      break;
    }
  });
  if (!reader.status().ok()) return reader.status();
  return profile;
}

Status SaveScd(const ScdProfile& profile, const std::string& path) {
  StatusOr<AtomicFile> file = AtomicFile::Create(path);
  if (!file.ok()) return file.status();
  if (Status s = file->Append(ToScdBytes(profile)); !s.ok()) return s;
  return file->Commit();
}

StatusOr<ScdProfile> LoadScd(const std::string& path) {
  StatusOr<NamedScd> named = LoadNamedScd(path);
  if (!named.ok()) return named.status();
  return std::move(named->profile);
}

StatusOr<NamedScd> LoadNamedScd(const std::string& path) {
  const StatusOr<std::string> bytes = ReadFile(path, kFileBytesMax);
  if (!bytes.ok()) return bytes.status();
  StatusOr<ScdProfile> profile = ParseScd(*bytes, path);
  if (!profile.ok()) return profile.status();
  Digest digest;
  std::memcpy(digest.data(), bytes->data() + bytes->size() - digest.size(), digest.size());
  return NamedScd{.profile = *std::move(profile), .digest = ToHex(digest)};
}

std::string WhyNoScd(const models::ModelSpec& spec) {
  if (!spec.layer_flops.empty() && !spec.mtp.served() && spec.attention.shape.window == 0) return {};
  return spec.architecture + ": SCD is of layers that see all positions, without a multi-token head";
}

Status CheckScdSide(const std::string_view name, const ScdSide& wanted, const ScdSide& found) {
  const auto fail = [&](const std::string_view field, const std::string& want, const std::string& found_text) {
    return FailedPrecondition(
        fmt::format("the SCD profile is of other models: {}.{}: wanted {}, found {}", name, field, want, found_text));
  };
  if (wanted.fingerprint != found.fingerprint) return fail("fingerprint", wanted.fingerprint, found.fingerprint);
  if (wanted.numerics_id != found.numerics_id) return fail("numerics", wanted.numerics_id, found.numerics_id);
  if (wanted.tokenizer != found.tokenizer) return fail("tokenizer", wanted.tokenizer, found.tokenizer);
  if (wanted != found) return fail("rope", "the frequencies and factor it was fitted with", "others");
  return OkStatus();
}

Status CheckScdSides(const ScdProfile& profile, const ScdSide& producer, const ScdSide& consumer) {
  if (Status s = CheckScdSide("producer", profile.producer, producer); !s.ok()) return s;
  return CheckScdSide("consumer", profile.consumer, consumer);
}

ScdSide ScdSideWith(const models::ModelSpec& spec, const std::string& tokenizer) {
  return {.fingerprint = spec.fingerprint,
          .numerics_id = spec.numerics_id,
          .tokenizer = tokenizer,
          .inverse_frequencies = spec.attention.inverse_frequencies,
          .rope_factor = spec.attention.rope_factor};
}

StatusOr<ScdSide> ScdSideOf(const models::ModelSpec& spec, const std::string& folder) {
  constexpr int64_t kTokenizerBytesMax = int64_t{256} << 20;
  const StatusOr<std::string> tokenizer = ReadFile(folder + "/tokenizer.json", kTokenizerBytesMax);
  if (!tokenizer.ok()) return tokenizer.status();
  return ScdSideWith(spec, ToHex(Sha256(*tokenizer)));
}

}  // namespace invar::engine
