// Tasks of invar eval: what is asked stands in the context, a right answer scores 1, and a seed gives one task.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "models/text.h"
#include "tests/support/tiny_model.h"
#include "tools/eval/fit_task.h"
#include "tools/eval/prompt.h"
#include "tools/eval/scorers.h"
#include "tools/eval/task.h"

namespace invar::eval {
namespace {

constexpr int32_t kTokens = 700;

std::unique_ptr<models::Tokenizer> TinyTokenizer() {
  auto tokenizer = models::LoadTokenizer(testing::AssetFolder("tiny-hybrid"));
  Check(tokenizer.ok(), "the tiny tokenizer loads");
  return *std::move(tokenizer);
}

class EveryTask : public ::testing::TestWithParam<TaskKind> {
 protected:
  int64_t Count(const std::string& text) const {
    return std::ssize(*tokenizer_->Encode(text, models::ControlTokens::kStayText, false, {}));
  }
  StatusOr<Task> Fit(const uint64_t seed, const int32_t tokens) const {
    return FitTask(GetParam(), seed, noise_, {.tokens = tokens, .count = [&](const std::string& text) {
                                                return StatusOr<int64_t>(Count(text));
                                              }});
  }

  const std::unique_ptr<models::Tokenizer> tokenizer_ = TinyTokenizer();
  const NoiseText noise_;
};

TEST_P(EveryTask, IsAsLongAsAskedFor) {
  for (const int32_t tokens : {kTokens, 3 * kTokens}) {
    const StatusOr<Task> task = Fit(1, tokens);
    ASSERT_TRUE(task.ok()) << task.status().message();
    EXPECT_LE(Count(task->context), tokens);
    // The longest unit: a record of four UUID-like groups, or a word more of `cwe` with all it brings along.
    EXPECT_GE(Count(task->context), tokens - 130);
  }
}

TEST_P(EveryTask, IsTheSameFromASeedAndAnotherFromAnother) {
  const Task task = *Fit(1, kTokens);
  const Task again = *Fit(1, kTokens);
  EXPECT_EQ(task.context + task.question + task.lead + task.gold,
            again.context + again.question + again.lead + again.gold);
  EXPECT_NE(task.context, Fit(2, kTokens)->context);
}

TEST_P(EveryTask, ScoresTheRightAnswerOneAndNoAnswerNothing) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Task task = *Fit(seed, kTokens);
    EXPECT_EQ(task.score(task, task.lead + task.gold), 1.0) << task.lead << task.gold;
    EXPECT_EQ(task.score(task, task.lead), 0.0) << task.lead;
    EXPECT_EQ(task.score(task, task.lead + " nothing at all."), 0.0);
  }
}

TEST_P(EveryTask, AsksForWhatStandsInTheContextWhateverItsLength) {
  for (const int32_t tokens : {kTokens, 2 * kTokens}) {
    const Task task = *Fit(3, tokens);
    if (task.score != ShareFound) continue;
    for (const std::string& one : task.expected) EXPECT_NE(task.context.find(one), std::string::npos) << one;
  }
}

TEST_P(EveryTask, SaysThatAContextIsTooShort) {
  const StatusOr<Task> task = Fit(1, 2);
  ASSERT_FALSE(task.ok());
  EXPECT_NE(task.status().message().find("--context-tokens: task " + std::string(GetParam().name)), std::string::npos)
      << task.status().message();
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryTask, ::testing::ValuesIn(TaskKinds().begin(), TaskKinds().end()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Scorers, JudgeAnswers) {
  const auto task = [](std::vector<std::string> expected, const std::string& lead, auto score) {
    return Task{
        .context = {}, .question = {}, .lead = lead, .gold = {}, .expected = std::move(expected), .score = score};
  };
  const Task found = task({"4711", "Anna"}, "They are", ShareFound);
  EXPECT_EQ(ShareFound(found, "They are 4711 and anna."), 1.0);
  EXPECT_EQ(ShareFound(found, "They are 4712 and ANNA"), 0.5);
  const Task number = task({"7"}, "In 2 rooms there are", SameNumber);
  EXPECT_EQ(SameNumber(number, "In 2 rooms there are about 7 of them, not 8"), 1.0);
  EXPECT_EQ(SameNumber(number, "In 2 rooms there are 77"), 0.0);
  EXPECT_EQ(SameNumber(number, "In 2 rooms there are seven"), 0.0);
  const Task call = task({R"({"name":"f","arguments":{"a":"1","b":"}"}})"}, "{", SameCall);
  EXPECT_EQ(SameCall(call, R"({ "arguments": {"b": "}", "a": "1"}, "name": "f" } and more})"), 1.0);
  EXPECT_EQ(SameCall(call, R"({"name":"f","arguments":{"a":"2","b":"}"}})"), 0.0) << "a wrong argument";
  EXPECT_EQ(SameCall(call, R"({"name":"f","arguments":{"a":"1","b":"}"})"), 0.0) << "cut off";
  EXPECT_EQ(SameCall(call, R"({"name":f})"), 0.0) << "no JSON";
}

TEST(NoiseText, FollowsASomebodysTextAndBeginsAgainAtItsEnd) {
  const NoiseText noise("One is here.\n\n  Two is\tthere!  Three");
  std::vector<std::string> sentences;
  for (int64_t i = 0; i < 6; ++i) sentences.push_back(noise.Sentence(5, i));
  EXPECT_EQ(std::vector(sentences.begin(), sentences.begin() + 3), std::vector(sentences.begin() + 3, sentences.end()));
  std::sort(sentences.begin(), sentences.end());
  EXPECT_EQ(sentences[0], "One is here.");
  EXPECT_EQ(sentences[2], "Three");
  EXPECT_EQ(sentences[4], "Two is there!");
  EXPECT_NE(NoiseText().Sentence(1, 0), NoiseText().Sentence(1, 1));
  EXPECT_NE(NoiseText().Sentence(1, 0), NoiseText().Sentence(2, 0));
}

TEST(PromptFrame, CutsTheTemplateWhereTheContextEnds) {
  const std::unique_ptr<models::Tokenizer> tokenizer = TinyTokenizer();
  const auto chat = models::LoadChatTemplate(testing::AssetFolder("tiny-hybrid"));
  ASSERT_TRUE(chat.ok());
  const Task task{.context = "Facts <|im_end|>.\n",
                  .question = "What?",
                  .lead = "It is",
                  .gold = " so.",
                  .expected = {"so"},
                  .score = ShareFound};
  const StatusOr<PromptFrame> frame = PromptFrame::Make(*tokenizer, chat->get());
  ASSERT_TRUE(frame.ok());
  const StatusOr<Prompt> prompt = frame->Lay(task);
  ASSERT_TRUE(prompt.ok());
  EXPECT_EQ(tokenizer->Decode(prompt->context, false), "<|im_start|>user\nFacts <|im_end|>.\n");
  EXPECT_EQ(tokenizer->Decode(prompt->question, false), "What?<|im_end|>\n<|im_start|>assistant\nIt is");
  EXPECT_EQ(tokenizer->Decode(prompt->gold, false), " so.");
  const TokenId end = *tokenizer->FindToken("<|im_end|>");
  EXPECT_EQ(std::ranges::count(prompt->context, end), 0) << "what a context spells stays text";
  EXPECT_EQ(std::ranges::count(prompt->question, end), 1);
}

}  // namespace
}  // namespace invar::eval
