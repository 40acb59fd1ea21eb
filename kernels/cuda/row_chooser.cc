// Sends what is to be done to the rows of a group, launches, and brings back what came of it in one copy.
#include "kernels/cuda/row_chooser.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/upload.h"

namespace invar::kernels::cuda {
namespace {

// Twenty rows of 248,320 logits that are sorted.
constexpr int64_t kGroupBytes = int64_t{64} << 20;

// Where a row works, from the beginning of its group's memory.
struct Work {
  int64_t row = 0;
  int64_t list = 0;
  int64_t partials = 0;
  int64_t end = 0;
};

bool TakesTopP(const RowChoice& choice) { return choice.settings.top_p < 1.0F; }
bool Sorts(const RowChoice& choice) {
  return choice.settings.top_k > 0 || TakesTopP(choice) || (choice.scores && choice.alternatives > 0);
}

Work WorkOf(const RowChoice& choice, const int64_t begin, const int64_t cols, const int32_t usable_ids) {
  const auto aligned = [](const int64_t bytes) { return (bytes + 255) / 256 * 256; };
  Work work{.row = begin};
  work.list = work.row + aligned((usable_ids + std::ssize(choice.allowed)) * 4);
  const auto slots = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(cols)));
  work.partials = work.list + (Sorts(choice) ? aligned(slots * 8) : 0);
  const int64_t sums = TakesTopP(choice) || choice.scores ? (cols + kExpSumBlock - 1) / kExpSumBlock : 0;
  work.end = work.partials + aligned(sums * 4);
  return work;
}

// One row's lists.
struct Lists {
  Upload::Array<PenalisedToken> penalised;
  Upload::Array<BiasedToken> biased;
  Upload::Array<int32_t> allowed;
  Upload::Array<int32_t> masked;
};

}  // namespace

void DeviceRowChooser::Choose(const int64_t cols, const int32_t usable_ids, const std::span<const RowChoice> choices,
                              const std::span<ChosenRow> chosen) {
  Check(usable_ids > 0 && usable_ids <= cols, "ids that can be chosen are columns", usable_ids, cols);
  Check(choices.size() == chosen.size(), "one chosen row a choice");
  size_t begin = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    const int64_t own = WorkOf(choices[i], 0, cols, usable_ids).end;
    if (i > begin && bytes + own > kGroupBytes) {
      ChooseGroup(cols, usable_ids, choices.subspan(begin, i - begin), chosen.subspan(begin, i - begin));
      begin = i;
      bytes = 0;
    }
    bytes += own;
  }
  if (begin < choices.size()) ChooseGroup(cols, usable_ids, choices.subspan(begin), chosen.subspan(begin));
}

void DeviceRowChooser::ChooseGroup(const int64_t cols, const int32_t usable_ids,
                                   const std::span<const RowChoice> choices, const std::span<ChosenRow> chosen) {
  const auto count = static_cast<int64_t>(choices.size());
  Upload upload(arguments_);
  const auto sent = upload.Space<DeviceRowChoice>(count);
  std::vector<Lists> lists;
  std::vector<Work> works;
  std::vector<int64_t> tops;  // First alternative of each row.
  int64_t alternatives = 0;
  bool scores = false;
  for (const RowChoice& choice : choices) {
    lists.push_back({upload.SpaceFor<PenalisedToken>(choice.penalised), upload.SpaceFor<BiasedToken>(choice.biased),
                     upload.SpaceFor<int32_t>(choice.allowed), upload.SpaceFor<int32_t>(choice.masked)});
    works.push_back(WorkOf(choice, works.empty() ? 0 : works.back().end, cols, usable_ids));
    tops.push_back(alternatives);
    alternatives += choice.scores ? choice.alternatives : 0;
    scores |= choice.scores;
  }
  upload.Place();
  auto* const scratch = static_cast<std::byte*>(scratch_.Reserve(works.back().end));
  const int64_t rows_bytes = count * static_cast<int64_t>(sizeof(DeviceChosenRow));
  const int64_t back_bytes = rows_bytes + alternatives * static_cast<int64_t>(sizeof(ScoredToken));
  auto* const back = static_cast<std::byte*>(chosen_.Reserve(back_bytes));
  for (size_t i = 0; i < choices.size(); ++i) {
    const RowChoice& choice = choices[i];
    upload.Fill<PenalisedToken>(lists[i].penalised, choice.penalised);
    upload.Fill<BiasedToken>(lists[i].biased, choice.biased);
    upload.Fill<int32_t>(lists[i].allowed, choice.allowed);
    upload.Fill<int32_t>(lists[i].masked, choice.masked);
    upload.at(sent)[i] = {.logits = choice.logits,
                          .penalised = upload.there(lists[i].penalised),
                          .penalised_count = static_cast<int32_t>(choice.penalised.size()),
                          .repetition = choice.repetition,
                          .frequency = choice.frequency,
                          .presence = choice.presence,
                          .biased = upload.there(lists[i].biased),
                          .biased_count = static_cast<int32_t>(choice.biased.size()),
                          .allowed = upload.there(lists[i].allowed),
                          .allowed_count = static_cast<int32_t>(choice.allowed.size()),
                          .masked = upload.there(lists[i].masked),
                          .masked_count = static_cast<int32_t>(choice.masked.size()),
                          .settings = choice.settings,
                          .key = choice.key,
                          .scores = choice.scores,
                          .alternatives = choice.alternatives,
                          .top = reinterpret_cast<ScoredToken*>(back + rows_bytes) + tops[i],
                          .row = reinterpret_cast<float*>(scratch + works[i].row),
                          .list = reinterpret_cast<uint64_t*>(scratch + works[i].list),
                          .partials = reinterpret_cast<float*>(scratch + works[i].partials)};
  }
  upload.Send(device_);
  ChooseRows({.cols = cols,
              .usable_ids = usable_ids,
              .choices = upload.there(sent),
              .count = count,
              .scores = scores,
              .chosen = reinterpret_cast<DeviceChosenRow*>(back)},
             device_.stream());
  back_.resize(static_cast<size_t>(back_bytes));
  device_.CopyOut(back_.data(), back, back_bytes);

  for (size_t i = 0; i < choices.size(); ++i) {
    DeviceChosenRow from;
    std::memcpy(&from, back_.data() + i * sizeof(from), sizeof(from));
    ChosenRow& to = chosen[i];
    to.finite = from.finite != 0;
    to.token = from.token;
    to.logit = from.logit;
    to.log_sum = from.log_sum;
    to.top.resize(static_cast<size_t>(from.top_count));
    if (to.top.empty()) continue;
    std::memcpy(to.top.data(), back_.data() + rows_bytes + tops[i] * static_cast<int64_t>(sizeof(ScoredToken)),
                to.top.size() * sizeof(ScoredToken));
  }
}

}  // namespace invar::kernels::cuda
