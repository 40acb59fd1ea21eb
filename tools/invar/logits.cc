// invar logits: logits of one token sequence, without a daemon. For comparing with other implementations and between
// backends; the numbers are those the daemon computes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "models/text/strict_json.h"
#include "models/weights/safetensors.h"
#include "tools/invar/command.h"
#include "tools/invar/local_model.h"
#include "tools/invar/parse.h"
#include "tools/invar/progress_bar.h"

namespace invar::tools {
namespace {

struct Options {
  LocalModelOptions local;
  std::string tokens_path;
  std::string out_path;
  int32_t chunk = 0;  // 0: whole, up to 512 tokens a forward.
  int32_t greedy = 0;
  std::vector<int32_t> states;
};

constexpr int32_t kChunkDefaultMax = 512;

// Tensors for the output file, in the order they came to be.
struct Output {
  std::vector<models::SafetensorsWriter::Tensor> tensors;
  std::vector<std::vector<std::byte>> bytes;

  template <typename T>
  void Add(const std::string& name, const std::string& dtype, std::vector<int64_t> shape,
           const std::vector<T>& values) {
    tensors.push_back({.name = name, .dtype = dtype, .shape = std::move(shape)});
    const auto* data = reinterpret_cast<const std::byte*>(values.data());
    bytes.emplace_back(data, data + values.size() * sizeof(T));
  }
};

StatusOr<std::vector<TokenId>> ReadTokens(const std::string& path, const int32_t vocabulary) {
  StatusOr<std::string> text = ReadFile(path, 256 << 20);
  if (!text.ok()) return text.status();
  StatusOr<nlohmann::json> json = models::ParseStrictJson(*text, path);
  if (!json.ok()) return json.status();
  if (!json->is_array() || json->empty())
    return InvalidArgument(path + ": wanted a JSON array of token ids, found none");
  std::vector<TokenId> tokens;
  for (const auto& id : *json) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(vocabulary)) {
      return InvalidArgument(fmt::format("{}: wanted ids in [0, {}), found {}", path, vocabulary, id.dump()));
    }
    tokens.emplace_back(id.get<int32_t>());
  }
  return tokens;
}

// state.P.recurrent.I and state.P.conv.I ([conv_dim, rows]: columns oldest first) of sequence 0.
void AddStates(LocalModel& local, const int32_t position, Output& out) {
  for (const models::RecurrentLayerState& state : local.model().spec().recurrent_states) {
    const std::byte* slot = local.memory().states;
    const auto* recurrent = reinterpret_cast<const float*>(slot + state.recurrent_offset_bytes);
    const auto* conv = reinterpret_cast<const float*>(slot + state.conv_offset_bytes);
    const int64_t size = int64_t{state.heads_v} * state.dim_k * state.dim_v;
    std::vector<float> columns(static_cast<size_t>(state.conv_rows) * static_cast<size_t>(state.conv_dim));
    for (int32_t r = 0; r < state.conv_rows; ++r) {
      for (int32_t c = 0; c < state.conv_dim; ++c) {
        columns[static_cast<size_t>(c) * state.conv_rows + r] = conv[static_cast<size_t>(r) * state.conv_dim + c];
      }
    }
    out.Add(fmt::format("state.{}.recurrent.{}", position, state.layer.value()), "F32",
            {state.heads_v, state.dim_k, state.dim_v}, std::vector<float>(recurrent, recurrent + size));
    out.Add(fmt::format("state.{}.conv.{}", position, state.layer.value()), "F32", {state.conv_dim, state.conv_rows},
            columns);
  }
}

// Runs the tokens in chunks, cut also where states are wanted. Gives all logits.
std::vector<float> RunPrompt(LocalModel& local, const Options& options, const std::span<const TokenId> tokens,
                             Output& out) {
  const auto count = static_cast<int32_t>(tokens.size());
  std::vector<float> logits;
  logits.reserve(static_cast<size_t>(count) * static_cast<size_t>(local.model().spec().vocabulary_size));
  ProgressBar bar("computing");
  for (int32_t begin = 0; begin < count;) {
    int32_t end = std::min(count, begin + options.local.max_batch_tokens);
    for (const int32_t position : options.states) {
      if (position > begin && position < end) end = position;
    }
    const models::ForwardSpan span =
        local.Span(0, tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), begin, end - begin);
    const kernels::ConstF32View rows = local.model().Forward(local.memory(), {&span, 1});
    for (int64_t r = 0; r < rows.rows; ++r) logits.insert(logits.end(), rows.row(r), rows.row(r) + rows.cols);
    begin = end;
    if (std::find(options.states.begin(), options.states.end(), end) != options.states.end())
      AddStates(local, end, out);
    bar.Show(end, count);
  }
  return logits;
}

// Index of the largest logit; ties go to the smallest id.
int32_t Best(const std::span<const float> row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

std::vector<int32_t> RunGreedy(LocalModel& local, const int32_t steps, const int32_t first_position,
                               const std::span<const float> last_row) {
  std::vector<int32_t> greedy;
  int32_t next = Best(last_row);
  for (int32_t i = 0; i < steps; ++i) {
    greedy.push_back(next);
    if (i + 1 == steps) break;
    const TokenId token(next);
    const models::ForwardSpan span = local.Span(0, {&token, 1}, first_position + i, 1);
    const kernels::ConstF32View row = local.model().Forward(local.memory(), {&span, 1});
    next = Best({row.row(0), static_cast<size_t>(row.cols)});
  }
  return greedy;
}

Status Write(const std::string& path, const Output& out) {
  StatusOr<models::SafetensorsWriter> writer = models::SafetensorsWriter::Create(path, out.tensors);
  if (!writer.ok()) return writer.status();
  for (size_t i = 0; i < out.bytes.size(); ++i)
    std::memcpy(writer->tensor(i).data(), out.bytes[i].data(), out.bytes[i].size());
  return writer->Commit();
}

Status Run(Options options) {
  options.local.max_batch_tokens = options.chunk > 0 ? options.chunk : kChunkDefaultMax;
  options.local.max_logits_rows = options.local.max_batch_tokens;
  StatusOr<LocalModel> local = LocalModel::Load(options.local);
  if (!local.ok()) return local.status();
  const models::ModelSpec& spec = local->model().spec();
  StatusOr<std::vector<TokenId>> tokens = ReadTokens(options.tokens_path, spec.vocabulary_size);
  if (!tokens.ok()) return tokens.status();
  const auto count = static_cast<int64_t>(tokens->size());
  const int64_t total = count + options.greedy;
  if (total > spec.max_sequence_tokens) {
    return InvalidArgument(
        fmt::format("wanted at most {} tokens, as the model allows, found {}", spec.max_sequence_tokens, total));
  }
  for (const int32_t position : options.states) {
    if (position < 1 || position > count) {
      return InvalidArgument(fmt::format("states: wanted positions in [1, {}], found {}", count, position));
    }
  }
  if (Status s = local->Allocate(1, static_cast<int32_t>(total)); !s.ok()) return s;

  Output out;
  const std::vector<float> logits = RunPrompt(*local, options, *tokens, out);
  const auto vocabulary = static_cast<size_t>(spec.vocabulary_size);
  if (options.greedy > 0) {
    const std::vector<int32_t> greedy =
        RunGreedy(*local, options.greedy, static_cast<int32_t>(count), std::span(logits).last(vocabulary));
    out.Add("greedy", "I32", {options.greedy}, greedy);
  }
  out.Add("logits", "F32", {count, spec.vocabulary_size}, logits);
  if (Status s = Write(options.out_path, out); !s.ok()) return s;
  std::printf("%lld tokens, numerics %s, isa %s\n", static_cast<long long>(count), spec.numerics_id.c_str(),
              std::string(local->backend().isa()).c_str());
  return OkStatus();
}

}  // namespace

int RunLogits(int argc, char** argv) {
  Options options;
  CLI::App app("Logits of one token sequence, without a daemon.", "invar logits");
  app.add_option("--model", options.local.folder, "model folder")->required();
  app.add_option("--tokens", options.tokens_path, "JSON array of token ids")->required();
  app.add_option("--out", options.out_path, "safetensors file to write")->required();
  app.add_option("--chunk", options.chunk, "tokens a forward")->check(CLI::Range(1, 1 << 20));
  AddLocalModelOptions(app, options.local);
  app.add_option("--greedy", options.greedy, "also continue greedily by this many tokens")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--states", options.states, "also write the recurrent states after these many tokens")->delimiter(',');
  if (const std::optional<int> code = Parse(app, argc, argv)) return *code;
  return ExitOf("logits", Run(options));
}

}  // namespace invar::tools
