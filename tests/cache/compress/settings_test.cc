// Texts that name a compressor: read strictly, and errors say what to write instead.
#include <gtest/gtest.h>

#include "cache/compressor.h"

namespace invar::cache {
namespace {

TEST(CompressorText, IsWrittenCanonicallyWithEverySetting) {
  EXPECT_EQ(MakeCompressor("noop").value()->provenance(), "noop");
  EXPECT_EQ(MakeCompressor("streaming").value()->provenance(), "streaming:sinks=4,recent=64,encoding=dense");
  EXPECT_EQ(MakeCompressor("streaming:recent=007,encoding=kivi2").value()->provenance(),
            "streaming:sinks=4,recent=7,encoding=kivi2");
  EXPECT_EQ(
      MakeCompressor("centroid:floor=0.70,outliers=1e-2").value()->provenance(),
      "centroid:sinks=4,recent=64,encoding=auto,chunk=64,rounds=8,share=0.5,schedule=floor,share_step=0,floor=0.7,"
      "floor_min=0.2,outliers=0.01,split=alternate,likeness=distance");
}

struct Refused {
  const char* text;
  const char* message;  // Part of it.
};

TEST(CompressorText, SaysWhatIsWrong) {
  for (const Refused& refused : {
           Refused{"", "there is no compressor \"\"; there are: noop random_drop streaming"},
           Refused{"snapKV", "there is no compressor \"snapKV\""},
           Refused{"noop:recent=3", "compressor noop: it has no setting \"recent\"; its settings are: none"},
           Refused{"noop:", "no settings follow the colon"},
           Refused{"int8:window=3", "it has no setting \"window\"; its settings are: recent"},
           Refused{"streaming:recent", "setting \"recent\" is \"\"; it takes 0..65536"},
           Refused{"streaming:recent=", "setting \"recent\" is \"\""},
           Refused{"streaming:recent=-1", "setting \"recent\" is \"-1\"; it takes 0..65536"},
           Refused{"streaming:recent=1.5", "setting \"recent\" is \"1.5\""},
           Refused{"streaming:recent=7x", "setting \"recent\" is \"7x\""},
           Refused{"streaming:recent=99999999999999999999", "setting \"recent\""},
           Refused{"streaming:recent=7,recent=8", "setting \"recent\" is given twice"},
           Refused{"streaming:recent=7,", "the settings end with a comma"},
           Refused{"streaming:,recent=7", "it has no setting \"\""},
           Refused{"streaming: recent=7", "it has no setting \" recent\""},
           Refused{"streaming:encoding=int4",
                   "setting \"encoding\" is \"int4\"; it takes auto|dense|int8|k8v4|kivi4|kivi2"},
           Refused{"centroid:floor=nan", "setting \"floor\" is \"nan\"; it takes -1..1"},
           Refused{"centroid:floor=1.01", "setting \"floor\" is \"1.01\"; it takes -1..1"},
           Refused{"centroid:schedule=Paper", "it takes floor|paper"},
       }) {
    const auto made = MakeCompressor(refused.text);
    ASSERT_FALSE(made.ok()) << refused.text;
    EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(made.status().message().find(refused.message), std::string::npos) << made.status().message();
  }
}

TEST(CompressorText, IsExplained) {
  EXPECT_NE(CompressorHelp("snapkv").find("window = 64 (1..1024): "), std::string::npos);
  EXPECT_NE(CompressorHelp("centroid").find("schedule = floor (floor|paper): "), std::string::npos);
  EXPECT_EQ(CompressorHelp("nothing"), "");
}

}  // namespace
}  // namespace invar::cache
