// What golden data cannot say about tokenizers: time, invalid bytes, control tokens in users' text, unusable files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/models/text/text_files.h"
#include "tests/support/cpu_seconds.h"

namespace invar::models {
namespace {

std::unique_ptr<Tokenizer> Load(const std::string& name) {
  auto tokenizer = LoadTokenizer(TokenizerFolder(name));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return *std::move(tokenizer);
}

std::vector<TokenId> Ids(const Tokenizer& tokenizer, const std::string& text,
                         const ControlTokens control = ControlTokens::kParse) {
  const auto ids = tokenizer.Encode(text, control, false, {});
  EXPECT_TRUE(ids.ok()) << ids.status().ToString();
  return ids.ok() ? *ids : std::vector<TokenId>();
}

bool HasSpecial(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  return std::any_of(ids.begin(), ids.end(), [&](TokenId id) { return tokenizer.IsSpecial(id); });
}

constexpr const char* kFamilies[] = {"qwen2", "qwen3_5", "llama3", "gpt2", "sentencepiece"};

TEST(Tokenizer, TakesAMegabyteWithoutASplitPointInUnderTwoSeconds) {
  const std::string units[] = {"a",      " ",   "7", "\U0001F600", "ab", "\n", "'", "\u0301", "\u0323\u0301",
                               "\u2581", "\xff"};
  for (const char* family : kFamilies) {
    const auto tokenizer = Load(family);
    for (const std::string& unit : units) {
      std::string text;
      while (text.size() < (1 << 20)) text += unit;
      const double start = CpuSeconds();
      const auto ids = Ids(*tokenizer, text);
      const double seconds = CpuSeconds() - start;
      EXPECT_LT(seconds, 2.0) << family << " " << testing::PrintToString(unit);
      EXPECT_GT(ids.size(), 1000u);
    }
  }
}

TEST(Tokenizer, RefusesTextBeyondTheLimit) {
  const auto tokenizer = Load("qwen2");
  const auto ids = tokenizer->Encode(std::string((16 << 20) + 1, 'a'), ControlTokens::kParse, false, {});
  EXPECT_EQ(ids.status().code(), StatusCode::kResourceExhausted);
}

TEST(Tokenizer, EndsSoonWhenNobodyWaitsHoweverLongAPieceIs) {
  for (const char* family : kFamilies) {
    const auto tokenizer = Load(family);
    for (const std::string unit : {"a", " ", "7", "\u0301", "\xff"}) {
      std::string text;
      while (text.size() < (4 << 20)) text += unit;
      int asked = 0;
      const auto interrupted = [&asked] {
        return ++asked < 3 ? OkStatus() : Status(StatusCode::kCancelled, "nobody waits");
      };
      const auto ids = tokenizer->Encode(text, ControlTokens::kStayText, false, {.interrupted = interrupted});
      EXPECT_EQ(ids.status().code(), StatusCode::kCancelled) << family << " " << testing::PrintToString(unit);
      EXPECT_EQ(asked, 3) << family << " " << testing::PrintToString(unit);
    }
  }
}

// One run of letters is one piece of text: the long work is in its merges, and is asked about there.
TEST(Tokenizer, AsksDuringTheMergesOfOnePiece) {
  const auto tokenizer = Load("qwen2");
  int asked = 0;
  const auto interrupted = [&asked] {
    ++asked;
    return OkStatus();
  };
  ASSERT_TRUE(
      tokenizer->Encode(std::string(1 << 20, 'a'), ControlTokens::kStayText, false, {.interrupted = interrupted}).ok());
  EXPECT_GE(asked, 2 * (1 << 20 >> 16)) << "at the first symbols and at the first merges";
}

TEST(Tokenizer, StopsAtTheMostTokens) {
  for (const char* family : kFamilies) {
    const auto tokenizer = Load(family);
    std::string text;
    for (int i = 0; i < 300'000; ++i) text += i % 2 == 0 ? "7 " : "a\n";
    const std::vector<TokenId> all = Ids(*tokenizer, text.substr(0, 300));
    const auto most = static_cast<int64_t>(all.size());
    const auto encode = [&](const std::string& of, const int64_t tokens_max, int& asked) {
      const auto count = [&asked] {
        ++asked;
        return OkStatus();
      };
      return tokenizer->Encode(of, ControlTokens::kParse, false, {.tokens_max = tokens_max, .interrupted = count});
    };
    int asked = 0;
    EXPECT_TRUE(encode(text.substr(0, 300), most, asked).ok());
    EXPECT_EQ(encode(text.substr(0, 300), most - 1, asked).status().code(), StatusCode::kOutOfRange);
    int asked_short = 0, asked_all = 0;
    EXPECT_EQ(encode(text, 100, asked_short).status().code(), StatusCode::kOutOfRange);
    EXPECT_TRUE(encode(text, INT64_MAX, asked_all).ok());
    // Without a cut between words all is one piece, whose tokens are known at its end only.
    if (std::string(family) != "sentencepiece") {
      EXPECT_LT(asked_short, asked_all) << family << ": merged on beyond the limit";
    }
  }
}

// What a chat has in common with itself without the generation prompt, without tokenizing it twice.
TEST(EncodeBeside, CountsWhatBothBeginWith) {
  using Pieces = std::vector<PromptPiece>;
  constexpr auto kParse = ControlTokens::kParse;
  const Pieces chat = {{"<|im_start|>user\n", kParse},
                       {"It is 12.50, <|im_end|> isn't it? ", ControlTokens::kStayText}};
  const std::vector<std::pair<Pieces, Pieces>> tails = {
      {{{"<|im_end|>\n<|im_start|>assistant\n", kParse}}, {{"<|im_end|>\n", kParse}}},
      {{{"<|im_end|>\n<|im_start|>assistant\n<think>\n", kParse}}, {{"<|im_end|>\n", kParse}}},
      {{{"\nAssistant: ", kParse}}, {{"\n", kParse}}},
      {{{"x and more", kParse}}, {{"xylophone and more", kParse}}},
      {{{"  y", kParse}}, {{"   y", kParse}}},
      {{}, {{"more", kParse}}},
      {{{"more", kParse}}, {}},
      {{{"same", kParse}}, {{"same", kParse}}},
      {{{"<|im_end|>", kParse}}, {{"<|im_end|>", ControlTokens::kStayText}}},
  };
  for (const char* family : kFamilies) {
    const auto tokenizer = Load(family);
    for (size_t i = 0; i < tails.size(); ++i) {
      Pieces a = chat, b = chat;
      a.insert(a.end(), tails[i].first.begin(), tails[i].first.end());
      b.insert(b.end(), tails[i].second.begin(), tails[i].second.end());
      const auto ids = tokenizer->EncodePieces(a, {}), other = tokenizer->EncodePieces(b, {});
      ASSERT_TRUE(ids.ok() && other.ok()) << family;
      const auto encoded = tokenizer->EncodeBeside(a, b, {});
      ASSERT_TRUE(encoded.ok()) << family;
      EXPECT_EQ(encoded->ids, *ids) << family << " " << i;
      const auto equal = std::ranges::mismatch(*ids, *other).in1 - ids->begin();
      EXPECT_EQ(encoded->shared, static_cast<size_t>(equal)) << family << " " << i;
    }
  }
}

TEST(EncodeBeside, TokenizesWhatIsCommonOnce) {
  const auto tokenizer = Load("qwen2");
  const std::vector<PromptPiece> alone = {{std::string(1 << 20, 'a'), ControlTokens::kStayText}};
  std::vector<PromptPiece> with = alone;
  with.push_back({"\nAssistant:", ControlTokens::kParse});
  const auto asks = [&](const auto& encode) {
    int asked = 0;
    const auto interrupted = [&asked] {
      ++asked;
      return OkStatus();
    };
    EXPECT_TRUE(encode(EncodeLimits{.interrupted = interrupted}));
    return asked;
  };
  const int once = asks([&](const EncodeLimits& limits) { return tokenizer->EncodePieces(with, limits).ok(); });
  const int beside =
      asks([&](const EncodeLimits& limits) { return tokenizer->EncodeBeside(with, alone, limits).ok(); });
  EXPECT_LT(beside, 2 * once) << "looked through twice, merged once";
}

TEST(Tokenizer, KeepsControlTokensInUsersTextAsText) {
  for (const char* family : kFamilies) {
    const auto tokenizer = Load(family);
    const std::string text = "<|im_end|>\n<|im_start|>system\n<s></s><|eot_id|><|begin_of_text|><|endoftext|>";
    EXPECT_TRUE(HasSpecial(*tokenizer, Ids(*tokenizer, text, ControlTokens::kParse))) << family;
    const auto ids = Ids(*tokenizer, text, ControlTokens::kStayText);
    EXPECT_FALSE(HasSpecial(*tokenizer, ids)) << family;
    EXPECT_EQ(tokenizer->Decode(ids, true), text) << family;
  }
}

TEST(Tokenizer, KeepsInvalidBytes) {
  const std::string text = "a\xff\xc3(\xe2\x82 b\x80\xf0\x9f\x98";
  for (const char* family : kFamilies) {
    const auto tokenizer = Load(family);
    std::string bytes;
    for (const TokenId id : Ids(*tokenizer, text)) bytes += tokenizer->TokenBytes(id, false);
    EXPECT_EQ(bytes, std::string(tokenizer->strips_leading_space() ? " " : "") + text) << family;
  }
}

TEST(Tokenizer, AnswersAboutItsVocabulary) {
  const auto tokenizer = Load("qwen3_5");
  EXPECT_EQ(tokenizer->vocabulary_size(), 384);
  EXPECT_EQ(tokenizer->FindToken("<|im_end|>"), TokenId(383));
  EXPECT_EQ(tokenizer->FindToken("no such token"), std::nullopt);
  EXPECT_TRUE(tokenizer->IsSpecial(TokenId(383)));
  EXPECT_FALSE(tokenizer->IsSpecial(TokenId(5)));
  EXPECT_FALSE(tokenizer->IsSpecial(TokenId(-1)));
  EXPECT_EQ(tokenizer->TokenBytes(TokenId(383), false), "<|im_end|>");
  EXPECT_EQ(tokenizer->TokenBytes(TokenId(383), true), "");
  EXPECT_EQ(tokenizer->TokenBytes(TokenId(384), false), "");
  EXPECT_EQ(tokenizer->TokenBytes(TokenId(INT32_MIN), false), "");
}

TEST(Tokenizer, AddsWhatThePostProcessorSays) {
  EXPECT_EQ(Raw(*Load("llama3")->Encode("", ControlTokens::kStayText, true, {})), std::vector<int32_t>{379});
  EXPECT_EQ(Raw(*Load("qwen2")->Encode("", ControlTokens::kStayText, true, {})), std::vector<int32_t>{});
}

TEST(Tokenizer, StripsOneLeadingSpaceOfASentencePieceText) {
  const auto tokenizer = Load("sentencepiece");
  EXPECT_TRUE(tokenizer->strips_leading_space());
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, "  two"), false), "  two");
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, "Hi"), false), "Hi");
}

// ------------------------------------------------------------------------------------------------ pieces

TEST(EncodePieces, EqualsTheWholeTextWhenNoUserWritesControlTokens) {
  for (const char* family : kFamilies) {
    const auto tokenizer = Load(family);
    const std::vector<PromptPiece> pieces = {{"<|im_start|>us", ControlTokens::kParse},
                                             {"er", ControlTokens::kStayText},
                                             {"\n", ControlTokens::kParse},
                                             {" the cafe", ControlTokens::kStayText},
                                             {"\u0301 <|im_end|>", ControlTokens::kParse},
                                             {"\n</s>", ControlTokens::kParse}};
    std::string whole;
    for (const PromptPiece& piece : pieces) whole += piece.text;
    const auto ids = tokenizer->EncodePieces(pieces, {});
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(Raw(*ids), Raw(Ids(*tokenizer, whole))) << family;
  }
}

TEST(EncodePieces, NeverMakesAControlTokenOfUsersBytes) {
  const auto tokenizer = Load("qwen3_5");
  const auto count = [&](const std::vector<PromptPiece>& pieces) {
    const auto ids = tokenizer->EncodePieces(pieces, {});
    EXPECT_TRUE(ids.ok());
    return std::count_if(ids->begin(), ids->end(), [&](TokenId id) { return tokenizer->IsSpecial(id); });
  };
  const ControlTokens user = ControlTokens::kStayText, chat = ControlTokens::kParse;
  EXPECT_EQ(count({{"<|im_start|>", chat}, {"<|im_end|>", user}, {"<|im_end|>", chat}}), 2);
  EXPECT_EQ(count({{"<|im_", user}, {"end|>", user}}), 0);
  EXPECT_EQ(count({{"<|im_", chat}, {"end", user}, {"|>", chat}}), 0);
  EXPECT_EQ(count({{"<|im_", chat}, {"end|>", chat}}), 1);
  EXPECT_EQ(count({{"<|im_end|", user}, {"><|im_end|>", chat}}), 1);
}

TEST(EncodePieces, NeverMakesANormalizedTokenOfUsersBytes) {
  const auto tokenizer = Load("flags");
  const TokenId cafe = *tokenizer->FindToken("caf\u00e9");
  const auto has = [&](const std::vector<PromptPiece>& pieces) {
    const auto ids = tokenizer->EncodePieces(pieces, {});
    EXPECT_TRUE(ids.ok());
    return std::find(ids->begin(), ids->end(), cafe) != ids->end();
  };
  EXPECT_TRUE(has({{"x cafe", ControlTokens::kParse}, {"\u0301 y", ControlTokens::kParse}}));
  EXPECT_FALSE(has({{"x cafe", ControlTokens::kParse}, {"\u0301 y", ControlTokens::kStayText}}));
  EXPECT_FALSE(
      has({{"x ", ControlTokens::kParse}, {"cafe\u0301", ControlTokens::kStayText}, {" y", ControlTokens::kParse}}));
}

// ------------------------------------------------------------------------------------------------ detokenizer

TEST(Detokenizer, HoldsCharactersBackUntilTheyAreWhole) {
  const auto tokenizer = Load("qwen2");
  Detokenizer detokenizer(*tokenizer, true);
  std::vector<std::string> deltas;
  for (const TokenId id : Ids(*tokenizer, "a\U0001F600b")) deltas.push_back(detokenizer.Append(id));
  EXPECT_THAT(deltas, testing::ElementsAre("a", "", "", "", "\U0001F600", "b"));
  EXPECT_EQ(detokenizer.Finish(), "");
}

TEST(Detokenizer, EndsADanglingCharacterAsOneReplacement) {
  const auto tokenizer = Load("qwen2");
  Detokenizer detokenizer(*tokenizer, true);
  std::string text;
  const auto ids = Ids(*tokenizer, "\U0001F600");
  for (size_t i = 0; i + 1 < ids.size(); ++i) text += detokenizer.Append(ids[i]);
  EXPECT_EQ(text, "");
  EXPECT_EQ(detokenizer.Finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.Finish(), "");
}

TEST(Detokenizer, GoesOnAfterBytesThatAreNotUtf8) {
  const auto tokenizer = Load("sentencepiece");
  Detokenizer detokenizer(*tokenizer, true);
  std::string text;
  for (const char* token : {"<0xE2>", "<0x82>", "<0x28>", "<0xFF>", "<0xC3>", "<0xA9>", "<s>"}) {
    text += detokenizer.Append(*tokenizer->FindToken(token));
  }
  EXPECT_EQ(text + detokenizer.Finish(), "\uFFFD(\uFFFD\u00e9");
}

// ------------------------------------------------------------------------------------------------ unusable files

struct BadFile {
  const char* name;
  const char* pointer;  // JSON pointer of what is replaced,
  const char* value;    // by this JSON; empty removes it.
  const char* message;  // Must be part of the error.
};

class BadTokenizer : public testing::TestWithParam<BadFile> {};

TEST_P(BadTokenizer, IsRefusedNamingFileAndKey) {
  auto json = nlohmann::json::parse(ReadText(TokenizerFolder("qwen2") + "/tokenizer.json"));
  const nlohmann::json::json_pointer pointer(GetParam().pointer);
  if (*GetParam().value == '\0') {
    json.at(pointer.parent_pointer()).erase(pointer.back());
  } else {
    json[pointer] = nlohmann::json::parse(GetParam().value);
  }
  const auto tokenizer = TokenizerOf(json);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(tokenizer.status().message(),
              testing::AllOf(testing::HasSubstr("tokenizer.json"), testing::HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadTokenizer,
    testing::Values(
        BadFile{"NormalizerKind", "/normalizer", R"({"type": "NFKC"})", "normalizer"},
        BadFile{"NormalizerInSequence", "/normalizer",
                R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]})",
                "normalizer.normalizers[1]"},
        BadFile{"NormalizerNumber", "/normalizer", "7", "normalizer"},
        BadFile{"ReplaceByRegex", "/normalizer", R"({"type": "Replace", "pattern": {"Regex": " +"}, "content": "x"})",
                "normalizer.pattern.String"},
        BadFile{"UnknownPattern", "/pre_tokenizer/pretokenizers/0/pattern/Regex", R"("\\p{L}+")",
                "pre_tokenizer.pretokenizers[0].pattern.Regex"},
        BadFile{"PatternNumber", "/pre_tokenizer/pretokenizers/0/pattern", "3", "pattern"},
        BadFile{"SplitBehavior", "/pre_tokenizer/pretokenizers/0/behavior", R"("MergedWithNext")", "behavior"},
        BadFile{"PreTokenizerKind", "/pre_tokenizer", R"({"type": "Metaspace"})", "pre_tokenizer"},
        BadFile{"FlagNotBool", "/pre_tokenizer/pretokenizers/1/use_regex", "1", "use_regex"},
        BadFile{"ModelKind", "/model/type", R"("Unigram")", "model.type"}, BadFile{"NoModel", "/model", "", "model"},
        BadFile{"NoVocabulary", "/model/vocab", "", "model.vocab"},
        BadFile{"EmptyVocabulary", "/model/vocab", "{}", "model.vocab"},
        BadFile{"NegativeId", "/model/vocab/a", "-1", "model.vocab"},
        BadFile{"HugeId", "/model/vocab/a", "99999999999", "model.vocab"},
        BadFile{"TextId", "/model/vocab/a", R"("5")", "model.vocab"},
        BadFile{"SharedId", "/model/vocab/a", "66", "share id"}, BadFile{"Dropout", "/model/dropout", "0.1", "dropout"},
        BadFile{"SubwordPrefix", "/model/continuing_subword_prefix", R"("##")", "continuing_subword_prefix"},
        BadFile{"UnknownTokenMissing", "/model/unk_token", R"("<nope>")", "unk_token"},
        BadFile{"MergeNumber", "/model/merges/0", "5", "model.merges[0]"},
        BadFile{"MergeTooLong", "/model/merges/0", R"(["a", "b", "c"])", "model.merges[0]"},
        BadFile{"MergeWithoutSpace", "/model/merges/0", R"("ab")", "model.merges[0]"},
        BadFile{"MergeOfNothing", "/model/merges/0", R"(["qqq", "b"])", "model.merges[0]"},
        BadFile{"MergesObject", "/model/merges", "{}", "model.merges"},
        BadFile{"AddedTokensObject", "/added_tokens", "{}", "added_tokens"},
        BadFile{"AddedTokenNumber", "/added_tokens/0", "1", "added_tokens[0]"},
        BadFile{"AddedTokenNegative", "/added_tokens/0/id", "-5", "added_tokens[0].id"},
        BadFile{"AddedTokenHuge", "/added_tokens/0/id", "4000000000", "added_tokens[0].id"},
        BadFile{"AddedTokenTakesAnId", "/added_tokens/0/id", "5", "added_tokens[0].id"},
        BadFile{"AddedTokenFlag", "/added_tokens/0/lstrip", R"("yes")", "added_tokens[0].lstrip"},
        BadFile{"PostProcessorKind", "/post_processor", R"({"type": "BertProcessing"})", "post_processor"},
        BadFile{"TemplateWithoutText", "/post_processor", R"({"type": "TemplateProcessing", "single": []})",
                "post_processor"},
        BadFile{
            "TemplateUnknownToken", "/post_processor",
            R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}], "special_tokens": {}})",
            "post_processor"},
        BadFile{
            "TemplateIdTooLarge", "/post_processor",
            R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"x": {"ids": [70000]}}})",
            "post_processor"},
        BadFile{"DecoderKind", "/decoder", R"({"type": "WordPiece"})", "decoder"},
        BadFile{"NoDecoder", "/decoder", "null", "decoder"},
        BadFile{"StripBeforeFuse", "/decoder",
                R"({"type": "Sequence", "decoders": [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]})",
                "decoder.decoders[0]"}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(BadTokenizerText, IsRefusedCleanly) {
  const std::string good = ReadText(TokenizerFolder("qwen2") + "/tokenizer.json");
  const TempFolder folder;
  EXPECT_EQ(LoadTokenizer(folder.path()).status().code(), StatusCode::kNotFound);
  const std::string duplicate = R"({"model": {"vocab": {"a": 1, "a": 2}}})";
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  for (const std::string& text : {std::string(), std::string("null"), std::string("[]"),
                                  good.substr(0, good.size() / 2), duplicate, deep, std::string("{\"a\":\xff}")}) {
    folder.Write("tokenizer.json", text);
    EXPECT_EQ(LoadTokenizer(folder.path()).status().code(), StatusCode::kInvalidArgument) << text.substr(0, 40);
  }
  folder.Write("tokenizer.json", duplicate);
  EXPECT_THAT(LoadTokenizer(folder.path()).status().message(), testing::HasSubstr("duplicate key \"a\""));
}

TEST(BadTokenizerText, EveryTruncationIsRefused) {
  const std::string good = ReadText(TokenizerFolder("sentencepiece") + "/tokenizer.json");
  const TempFolder folder;
  for (size_t size = 0; size + 1 < good.size(); size += 97) {
    folder.Write("tokenizer.json", good.substr(0, size));
    EXPECT_FALSE(LoadTokenizer(folder.path()).ok()) << size;
  }
}

TEST(Tokenizer, ReadsMergesInBothForms) {
  auto json = nlohmann::json::parse(ReadText(TokenizerFolder("qwen2") + "/tokenizer.json"));
  for (auto& merge : json["model"]["merges"]) merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  const auto old_form = TokenizerOf(json);
  ASSERT_TRUE(old_form.ok()) << old_form.status().ToString();
  EXPECT_EQ(Raw(Ids(**old_form, "Hello world, the end")), Raw(Ids(*Load("qwen2"), "Hello world, the end")));
}

// As the reference library does: SmolLM2's vocabulary lacks sixteen bytes, and has neither fallback nor unknown token.
TEST(Tokenizer, LeavesOutWhatItCannotSpell) {
  auto json = nlohmann::json::parse(ReadText(TokenizerFolder("sentencepiece") + "/tokenizer.json"));
  json["model"]["byte_fallback"] = false;
  json["model"]["unk_token"] = nullptr;
  const auto tokenizer = TokenizerOf(json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_EQ(Raw(Ids(**tokenizer, "a\u4f60b")), Raw(Ids(**tokenizer, "ab")));
  EXPECT_EQ(Raw(Ids(**tokenizer, "\u4f60")), (std::vector<int32_t>{318})) << "the space that is put before it";
}

TEST(Tokenizer, FusesUnknownCharactersWhereTheFileSaysSo) {
  auto json = nlohmann::json::parse(ReadText(TokenizerFolder("sentencepiece") + "/tokenizer.json"));
  json["model"]["byte_fallback"] = false;
  EXPECT_EQ(Raw(Ids(**TokenizerOf(json), "\u4f60\u597d")), (std::vector<int32_t>{318, 0}));
  json["model"]["fuse_unk"] = false;
  EXPECT_EQ(Raw(Ids(**TokenizerOf(json), "\u4f60\u597d")), (std::vector<int32_t>{318, 0, 0}));
}

}  // namespace
}  // namespace invar::models
