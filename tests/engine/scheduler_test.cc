// Plan() as a table: queues, budgets and pool counts in, the step out. No model, no clock.
#include "engine/schedule/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <string>

#include "tools/sim/random.h"

namespace invar::engine {
namespace {

// Short hands, so that a case reads as a list. Logits are wanted of the last token unless said.
SequenceView Seq(const int64_t id, const int32_t computed, const int32_t total, const int32_t pages) {
  SequenceView view;
  view.id = SequenceId(id);
  view.arrival = id;
  view.computed = computed;
  view.total = total;
  view.logits_from = total - 1;
  view.pages = pages;
  view.own_pages = pages;
  return view;
}
SequenceView Priority(SequenceView view, const int32_t priority) {
  view.priority = priority;
  return view;
}
SequenceView Tenant(SequenceView view, const int32_t tenant) {
  view.tenant = tenant;
  return view;
}
SequenceView Paused(SequenceView view, const bool yields) {
  view.paused = true;
  view.yields = yields;
  return view;
}
SequenceView Waits(SequenceView view) {
  view.stands_aside = true;
  return view;
}
SequenceView Sharing(SequenceView view, const int32_t pages) {
  view.shared_pages = pages;
  return view;
}
SequenceView Drafted(SequenceView view, const int32_t drafted) {
  view.drafted = drafted;
  return view;
}
SequenceView Scored(SequenceView view, const int32_t logits_from) {
  view.logits_from = logits_from;
  return view;
}

// On a compressed view: so many tokens take no places, and no span runs beyond `span_end`.
SequenceView OnView(SequenceView view, const int32_t saved_tokens, const int32_t span_end) {
  view.saved_tokens = saved_tokens;
  view.span_end = span_end;
  return view;
}
// Beyond so many pages what is computed leaves before more is.
SequenceView MovingOut(SequenceView view, const int32_t pages) {
  view.pages_max = pages;
  view.span_end = view.saved_tokens + pages * 64;
  return view;
}
SequenceView WithSpare(SequenceView view, const int32_t spare_pages) {
  view.spare_pages = spare_pages;
  return view;
}
// About to give up its pages, so many of which others hold too.
SequenceView Parting(SequenceView view, const int32_t shared_pages) {
  view.parts = true;
  view.shared_pages = shared_pages;
  view.own_pages = view.pages - shared_pages;
  return view;
}

struct Case {
  const char* name;
  SchedulerLimits limits;
  Snapshot snapshot;
  std::vector<int64_t> preempt;
  std::vector<int64_t> admit;
  std::vector<Span> spans;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

SchedulerLimits Limits(const int32_t tokens, const int32_t rows = 64, const int32_t chunk = 512,
                       const int32_t running = 64) {
  return {.max_batch_tokens = tokens,
          .max_logits_rows = rows,
          .prefill_chunk_tokens = chunk,
          .max_running = running,
          .page_tokens = 64};
}
Snapshot Queues(std::vector<SequenceView> running, std::vector<SequenceView> waiting, const int32_t free_pages,
                const int32_t free_slots = 64, std::vector<int64_t> served = {0, 0, 0}) {
  return {std::move(running), std::move(waiting), std::move(served), free_pages, free_slots};
}
SchedulerLimits Logs(SchedulerLimits limits, const int32_t rows, const int32_t head) {
  limits.max_log_rows = rows;
  limits.log_head_rows = head;
  return limits;
}
Span Run(const int64_t id, const int32_t first, const int32_t length, const int32_t rows, const int32_t drafted = 0) {
  return {SequenceId(id), first, length, rows, drafted};
}
std::vector<int64_t> Values(const std::vector<SequenceId>& ids) {
  std::vector<int64_t> values;
  for (const SequenceId id : ids) values.push_back(id.value());
  return values;
}

class SchedulerTable : public testing::TestWithParam<Case> {};

TEST_P(SchedulerTable, Plans) {
  const Case& c = GetParam();
  const Step step = Plan(c.snapshot, c.limits);
  EXPECT_EQ(Values(step.preempt), c.preempt);
  EXPECT_EQ(Values(step.admit), c.admit);
  ASSERT_EQ(step.spans.size(), c.spans.size());
  for (size_t i = 0; i < step.spans.size(); ++i) {
    EXPECT_EQ(step.spans[i], c.spans[i]) << "span " << i << ": sequence " << step.spans[i].sequence << " first "
                                         << step.spans[i].first << " length " << step.spans[i].length << " rows "
                                         << step.spans[i].logits_rows;
  }
}

const Case kCases[] = {
    {"WhoMovesOutAsItGoesNeedsRoomForAPartOnly",
     Limits(512),
     Queues({}, {MovingOut(Seq(1, 0, 6'000, 0), 3)}, 3),
     {},
     {1},
     {Run(1, 0, 192, 0)}},
    {"WhatMovesOutAsItGoesTakesNoMoreThanItsPart",
     Limits(512),
     Queues({MovingOut(OnView(Seq(1, 640, 6'000, 0), 640, 0), 3), Seq(2, 0, 256, 0)}, {}, 7),
     {},
     {},
     {Run(1, 640, 192, 0), Run(2, 0, 256, 1)}},
    {"WhoWaitsForItsPagesToLeavePreemptsNobody",
     Limits(512),
     Queues({MovingOut(OnView(Seq(1, 832, 6'000, 3), 640, 0), 3), Seq(2, 64, 65, 1)}, {}, 1),
     {},
     {},
     {Run(2, 64, 1, 1)}},
    {"WhoWaitsKeepsItsPagesAndHasNoSpan",
     Limits(64),
     Queues({Waits(Seq(1, 63, 64, 1)), Seq(2, 64, 65, 1)}, {}, 1),
     {},
     {},
     {Run(2, 64, 1, 1)}},
    {"PositionsOfAViewTakeNoPlaces",
     Limits(64),
     Queues({OnView(Seq(1, 1000, 1001, 2), 900, 1064)}, {}, 0),
     {},
     {},
     {Run(1, 1000, 1, 1)}},
    {"DraftsBehindAViewLeaveOthersTheirPages",
     Limits(64),
     Queues({Drafted(OnView(Seq(1, 1000, 1001, 2), 900, 1064), 4), Drafted(Seq(2, 62, 63, 1), 4)}, {}, 2),
     {},
     {},
     {Run(1, 1000, 5, 5, 4), Run(2, 62, 5, 5, 4)}},
    {"AViewIsRunAgainToItsBoundaryOnly",
     Limits(512),
     Queues({OnView(Seq(1, 1000, 1200, 2), 900, 1064)}, {}, 4),
     {},
     {},
     {Run(1, 1000, 64, 0)}},
    {"UpkeepWaitsForTheFreePageItMayTake",
     Limits(64),
     Queues({WithSpare(OnView(Seq(1, 1000, 1001, 2), 900, 1064), 1)}, {}, 0),
     {},
     {},
     {}},
    {"UpkeepRunsWhereAPageIsFree",
     Limits(64),
     Queues({WithSpare(OnView(Seq(1, 1000, 1001, 2), 900, 1064), 1)}, {}, 1),
     {},
     {},
     {Run(1, 1000, 1, 1)}},
    {"UpkeepTakesThePageOfALowerRank",
     Limits(64),
     Queues({WithSpare(OnView(Seq(1, 1000, 1001, 2), 900, 1064), 1), Seq(2, 10, 11, 1)}, {}, 0),
     {2},
     {},
     {Run(1, 1000, 1, 1)}},
    {"WhoGivesUpSharedPagesNeedsAsManyFree",
     Limits(64),
     Queues({Parting(Seq(1, 630, 631, 10), 4), Seq(2, 320, 321, 6)}, {}, 3),
     {2},
     {},
     {Run(1, 630, 1, 1)}},
    {"WhoGivesUpSharedPagesRunsBesideTheirHoldersWhereAsManyAreFree",
     Limits(64),
     Queues({Parting(Seq(1, 630, 631, 10), 4), Seq(2, 320, 321, 6)}, {}, 4),
     {},
     {},
     {Run(1, 630, 1, 1), Run(2, 320, 1, 1)}},
    {"WhoIsLeftAloneSharesNothing",
     Limits(64),
     Queues({Parting(Seq(1, 630, 631, 10), 8)}, {}, 0),
     {},
     {},
     {Run(1, 630, 1, 1)}},
    {"NothingToDo", Limits(64), Queues({}, {}, 4), {}, {}, {}},
    {"AWaitingRequestStartsAtOnce", Limits(64), Queues({}, {Seq(1, 0, 10, 0)}, 4), {}, {1}, {Run(1, 0, 10, 1)}},
    {"ARequestNeedsNoRoomForWhatItShares",
     Limits(1),
     Queues({Seq(1, 640, 641, 11)}, {Sharing(Seq(2, 0, 700, 0), 10)}, 1),
     {},
     {2},
     {Run(1, 640, 1, 1)}},
    {"WhatItSharesWithThoseItTakesMemoryFromCounts",
     Limits(64),
     Queues({Seq(1, 640, 641, 11)}, {Sharing(Priority(Seq(2, 0, 832, 0), 1), 10)}, 1),
     {},
     {},
     {Run(1, 640, 1, 1)}},
    {"DecodeGoesBeforePrefill",
     Limits(8),
     Queues({Seq(1, 0, 100, 0), Seq(2, 20, 21, 1)}, {}, 4),
     {},
     {},
     {Run(1, 0, 7, 0), Run(2, 20, 1, 1)}},
    {"ThePromptIsCutAtTheTokenBudget", Limits(17), Queues({Seq(1, 17, 40, 1)}, {}, 4), {}, {}, {Run(1, 17, 17, 0)}},
    {"ThePromptIsCutAtTheChunk", Limits(64, 64, 5), Queues({Seq(1, 0, 40, 0)}, {}, 4), {}, {}, {Run(1, 0, 5, 0)}},
    {"NeverMoreLogitsRowsThanTheModelHas",
     Limits(64, 2),
     Queues({Seq(1, 5, 6, 1), Seq(2, 5, 6, 1), Seq(3, 5, 6, 1)}, {}, 4),
     {},
     {},
     {Run(1, 5, 1, 1), Run(2, 5, 1, 1)}},
    {"APromptMayRunWithoutRowsUpToItsLastToken",
     Limits(64, 1),
     Queues({Seq(1, 5, 6, 1), Seq(2, 0, 30, 1)}, {}, 4),
     {},
     {},
     {Run(1, 5, 1, 1), Run(2, 0, 29, 0)}},
    {"ScoredPromptsAreCutAtTheLogitsRows",
     Limits(64, 8),
     Queues({Scored(Seq(1, 0, 30, 0), 0)}, {}, 4),
     {},
     {},
     {Run(1, 0, 8, 8)}},
    {"AScoredPromptRunsAgainWithoutRowsForWhatIsScored",
     Limits(64, 8),
     Queues({Scored(Seq(1, 0, 30, 0), 20)}, {}, 4),
     {},
     {},
     {Run(1, 0, 28, 8)}},
    {"NoAdmissionBeyondTheSlots", Limits(64), Queues({}, {Seq(1, 0, 4, 0)}, 4, 0), {}, {}, {}},
    {"NoAdmissionBeyondMaxRunning",
     Limits(64, 64, 512, 1),
     Queues({Seq(1, 4, 5, 1)}, {Seq(2, 0, 4, 0)}, 4),
     {},
     {},
     {Run(1, 4, 1, 1)}},
    {"NoAdmissionWithoutPagesForTheWholePrompt",
     Limits(512),
     Queues({Seq(1, 4, 5, 1)}, {Seq(2, 0, 65, 0)}, 1),
     {},
     {},
     {Run(1, 4, 1, 1)}},
    {"PagesThatRunningPromptsStillNeedAreNotForNewcomers",
     Limits(10),
     Queues({Seq(1, 0, 128, 0)}, {Seq(2, 0, 10, 0)}, 2),
     {},
     {},
     {Run(1, 0, 10, 0)}},
    {"ALargeRequestIsNotPassedBySmallerOnes",
     Limits(512),
     Queues({Seq(1, 4, 5, 1)}, {Seq(2, 0, 200, 0), Seq(3, 0, 4, 0)}, 2),
     {},
     {},
     {Run(1, 4, 1, 1)}},
    {"HigherPriorityGoesFirst",
     Limits(512, 64, 512, 1),
     Queues({}, {Seq(1, 0, 4, 0), Priority(Seq(2, 0, 4, 0), 1)}, 4),
     {},
     {2},
     {Run(2, 0, 4, 1)}},
    {"TheLeastServedTenantGoesFirst",
     Limits(512, 64, 512, 1),
     Queues({}, {Tenant(Seq(1, 0, 4, 0), 0), Tenant(Seq(2, 0, 4, 0), 1)}, 4, 64, {100, 50}),
     {},
     {2},
     {Run(2, 0, 4, 1)}},
    {"TenantsTakeTurnsWithinOneStep",
     Limits(512, 64, 512, 2),
     Queues({}, {Tenant(Seq(1, 0, 4, 0), 0), Tenant(Seq(2, 0, 4, 0), 0), Tenant(Seq(3, 0, 4, 0), 1)}, 4),
     {},
     {1, 3},
     {Run(1, 0, 4, 1), Run(3, 0, 4, 1)}},
    {"ADecodeWithoutAPageTakesTheYoungest",
     Limits(64),
     Queues({Seq(1, 64, 65, 1), Seq(2, 10, 11, 1), Seq(3, 10, 11, 1)}, {}, 0),
     {3},
     {},
     {Run(1, 64, 1, 1), Run(2, 10, 1, 1)}},
    {"TheLowestPriorityIsTakenBeforeTheYoungest",
     Limits(64),
     Queues({Seq(1, 64, 65, 1), Priority(Seq(2, 10, 11, 1), -1), Seq(3, 10, 11, 1)}, {}, 0),
     {2},
     {},
     {Run(1, 64, 1, 1), Run(3, 10, 1, 1)}},
    {"APausedReaderIsTakenFirst",
     Limits(64),
     Queues({Paused(Seq(1, 10, 11, 1), false), Seq(2, 64, 65, 1), Seq(3, 10, 11, 1)}, {}, 0),
     {1},
     {},
     {Run(2, 64, 1, 1), Run(3, 10, 1, 1)}},
    {"TheYoungestWaitsForAPageInsteadOfTakingOlderOnes",
     Limits(64),
     Queues({Seq(1, 10, 11, 1), Seq(2, 64, 65, 1)}, {}, 0),
     {},
     {},
     {Run(1, 10, 1, 1)}},
    {"NothingIsAdmittedIntoPagesJustTaken",
     Limits(64),
     Queues({Seq(1, 64, 65, 1), Seq(2, 10, 11, 1)}, {Seq(3, 0, 4, 0)}, 0),
     {2},
     {},
     {Run(1, 64, 1, 1)}},
    {"AnOlderPromptTakesThePageOfAYoungerDecode",
     Limits(64),
     Queues({Seq(1, 64, 100, 1), Seq(2, 10, 11, 1)}, {}, 0),
     {2},
     {},
     {Run(1, 64, 36, 1)}},
    {"ARequestOfHigherPriorityTakesMemoryOfALower",
     Limits(64),
     Queues({Seq(1, 10, 11, 1)}, {Priority(Seq(2, 0, 4, 0), 1)}, 0),
     {1},
     {2},
     {Run(2, 0, 4, 1)}},
    {"NobodyIsPreemptedWhereItWouldNotHelp",
     Limits(64),
     Queues({Seq(1, 10, 11, 1)}, {Priority(Seq(2, 0, 200, 0), 1)}, 0),
     {},
     {},
     {Run(1, 10, 1, 1)}},
    {"EqualPriorityDoesNotTakeMemory",
     Limits(64),
     Queues({Seq(1, 10, 11, 1)}, {Seq(2, 0, 4, 0)}, 0),
     {},
     {},
     {Run(1, 10, 1, 1)}},
    {"ALongStalledReaderYieldsToWaitingRequests",
     Limits(64),
     Queues({Paused(Seq(1, 10, 11, 1), true)}, {Seq(2, 0, 4, 0)}, 0),
     {1},
     {2},
     {Run(2, 0, 4, 1)}},
    {"AShortPauseKeepsItsMemory",
     Limits(64),
     Queues({Paused(Seq(1, 10, 11, 1), false)}, {Seq(2, 0, 4, 0)}, 0),
     {},
     {},
     {}},
    {"PausedSequencesDoNotRun", Limits(64), Queues({Paused(Seq(1, 10, 11, 1), true)}, {}, 4), {}, {}, {}},
    {"ADraftRunsBehindItsToken",
     Limits(64),
     Queues({Drafted(Seq(1, 10, 11, 1), 4)}, {}, 4),
     {},
     {},
     {Run(1, 10, 5, 5, 4)}},
    {"DraftsTakeTheTokensThatDecodeAndPrefillLeave",
     Limits(10),
     Queues({Drafted(Seq(1, 10, 11, 1), 4), Drafted(Seq(2, 10, 11, 1), 4), Seq(3, 0, 5, 1)}, {}, 4),
     {},
     {},
     {Run(1, 10, 4, 4, 3), Run(2, 10, 1, 1), Run(3, 0, 5, 1)}},
    {"DraftsTakeTheRowsThatOthersLeave",
     Limits(64, 6),
     Queues({Drafted(Seq(1, 10, 11, 1), 2), Drafted(Seq(2, 10, 11, 1), 9)}, {}, 4),
     {},
     {},
     {Run(1, 10, 3, 3, 2), Run(2, 10, 3, 3, 2)}},
    {"DraftsFitTheLogsWithTheirHeads",
     Logs(Limits(64), 12, 3),
     Queues({Drafted(Seq(1, 10, 11, 1), 2), Drafted(Seq(2, 10, 11, 1), 9), Drafted(Seq(3, 10, 11, 1), 9)}, {}, 4),
     {},
     {},
     {Run(1, 10, 3, 3, 2), Run(2, 10, 3, 3, 2), Run(3, 10, 1, 1)}},
    {"WithoutLogsNobodyVerifiesADraft",
     Logs(Limits(64), 0, 0),
     Queues({Drafted(Seq(1, 10, 11, 1), 2)}, {}, 4),
     {},
     {},
     {Run(1, 10, 1, 1)}},
    {"ADraftEndsWithThePageWhereNoneIsSpare",
     Limits(64),
     Queues({Drafted(Seq(1, 60, 61, 1), 9), Seq(2, 10, 11, 1)}, {}, 1),
     {},
     {},
     {Run(1, 60, 4, 4, 3), Run(2, 10, 1, 1)}},
    {"ADraftTakesAPageThatIsSpare",
     Limits(64),
     Queues({Drafted(Seq(1, 60, 61, 1), 9), Seq(2, 10, 11, 1)}, {}, 2),
     {},
     {},
     {Run(1, 60, 10, 10, 9), Run(2, 10, 1, 1)}},
    {"ADraftPreemptsNobody",
     Limits(64),
     Queues({Drafted(Priority(Seq(1, 63, 64, 1), 1), 9), Seq(2, 10, 11, 1)}, {}, 0),
     {},
     {},
     {Run(1, 63, 1, 1), Run(2, 10, 1, 1)}},
    {"ADraftOfAPausedReaderDoesNotRun",
     Limits(64),
     Queues({Drafted(Paused(Seq(1, 10, 11, 1), false), 4)}, {}, 4),
     {},
     {},
     {}},
    {"WhoIsPreemptedLosesTheDraftToo",
     Limits(64),
     Queues({Seq(1, 64, 65, 1), Drafted(Seq(2, 10, 11, 1), 4)}, {}, 0),
     {2},
     {},
     {Run(1, 64, 1, 1)}},
    {"PausedRequestsAreNotAdmitted", Limits(64), Queues({}, {Paused(Seq(1, 0, 4, 0), true)}, 4), {}, {}, {}},
};
INSTANTIATE_TEST_SUITE_P(All, SchedulerTable, testing::ValuesIn(kCases), [](const auto& p) { return p.param.name; });

// Random snapshots: a plan keeps every limit, and something runs whenever something can.
TEST(Scheduler, EveryPlanKeepsItsLimitsAndMakesProgress) {
  sim::Random random(7);
  for (int round = 0; round < 20'000; ++round) {
    const SchedulerLimits limits =
        Logs(Limits(random.Between(1, 80), random.Between(1, 5), random.Between(1, 70), random.Between(1, 6)),
             random.Between(0, 12), random.Between(0, 2));
    Snapshot snapshot = Queues({}, {}, random.Between(0, 4), 0);
    const int32_t running = random.Between(0, limits.max_running);
    snapshot.free_slots = limits.max_running - running;
    bool can_run = false;
    for (int32_t i = 0; i < running + random.Between(0, 4); ++i) {
      const bool runs = i < running;
      const int32_t total = random.Between(1, 150);
      const int32_t computed = !runs ? 0 : random.Percent(40) ? total - 1 : random.Between(0, total - 1);
      SequenceView view = Seq(i, computed, total, runs ? (computed + 63) / 64 : 0);
      view.priority = random.Between(-1, 1);
      view.tenant = random.Between(0, 2);
      view.paused = random.Percent(20);
      view.logits_from = random.Between(0, total - 1);
      if (runs && total - computed == 1) view.drafted = random.Between(0, 6);
      can_run = can_run || (runs && !view.paused);
      (runs ? snapshot.running : snapshot.waiting).push_back(view);
    }
    int32_t held = 0;
    for (const SequenceView& view : snapshot.running) held += view.pages;
    snapshot.free_pages += 3 - std::min(3, held);  // Every sequence fits when alone.

    const Step step = Plan(snapshot, limits);
    int32_t tokens = 0;
    int32_t rows = 0;
    int32_t log_rows = 0;
    int32_t pages = snapshot.free_pages;
    std::map<SequenceId, const SequenceView*> views;
    for (const auto* const queue : {&snapshot.running, &snapshot.waiting}) {
      for (const SequenceView& view : *queue) views[view.id] = &view;
    }
    for (const SequenceId id : step.preempt) pages += views[id]->pages;
    for (const Span& span : step.spans) {
      const SequenceView& view = *views[span.sequence];
      ASSERT_FALSE(view.paused);
      ASSERT_EQ(span.first, view.computed);
      ASSERT_GE(span.length, 1);
      ASSERT_LE(span.drafted, view.drafted);
      ASSERT_LE(span.first + span.length, view.total + span.drafted);
      ASSERT_LE(span.length - span.drafted, limits.prefill_chunk_tokens);
      ASSERT_EQ(span.logits_rows, std::max(0, span.first + span.length - std::max(span.first, view.logits_from)));
      if (span.drafted > 0) log_rows += limits.log_head_rows + span.length;
      tokens += span.length;
      rows += span.logits_rows;
      pages -= std::max(0, (span.first + span.length + 63) / 64 - view.pages);
    }
    ASSERT_LE(tokens, limits.max_batch_tokens);
    ASSERT_LE(rows, limits.max_logits_rows);
    ASSERT_LE(log_rows, limits.max_log_rows);
    ASSERT_GE(pages, 0);
    ASSERT_LE(snapshot.running.size() - step.preempt.size() + step.admit.size(), limits.max_running);
    ASSERT_TRUE(!can_run || !step.spans.empty());
  }
}

TEST(PagesWanted, CountWhatRunsOnAndTheNextToCome) {
  const Snapshot snapshot = Queues({Seq(1, 64, 65, 1), OnView(Seq(2, 640, 641, 1), 640, 700)}, {Seq(3, 0, 130, 0)}, 9);
  EXPECT_EQ(FindPagesWanted(snapshot, Limits(64)).running, (1 + 1) + 1);
  EXPECT_EQ(FindPagesWanted(snapshot, Limits(64)).next, 3);
  Snapshot in_parts = snapshot;
  in_parts.waiting[0].pages_max = 2;
  EXPECT_EQ(FindPagesWanted(in_parts, Limits(64)).next, 2);
  Snapshot full = snapshot;
  full.free_slots = 0;
  EXPECT_EQ(FindPagesWanted(full, Limits(64)).next, 0) << "pages alone do not let it in";
}

}  // namespace
}  // namespace invar::engine
