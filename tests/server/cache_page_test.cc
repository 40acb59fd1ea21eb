// The page is bounded, and what others chose of it cannot become markup.
#include "server/services/cache_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace invar::server {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(CachePage, WritesNamesAsText) {
  engine::CacheSnapshot snapshot;
  snapshot.tree.tenants = {{"<img src=x onerror='a'>&\"", {}}};
  snapshot.tree.nodes = {{.parent = -1, .tenant = 0, .end = 5, .has_kv = true, .tokens_below = 5}};
  const std::string page = CachePage("</h1><script>alert(1)</script>", &snapshot, 0.5);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, HasSubstr("&lt;img src=x onerror=&#39;a&#39;&gt;&amp;&quot;"));
}

TEST(CachePage, IsBoundedWhateverTheTreeIs) {
  engine::CacheSnapshot snapshot;
  for (int i = 0; i < 5000; ++i) snapshot.tree.tenants.push_back({std::string(64, 'a') + std::to_string(i), {}});
  for (int i = 0; i < 1024; ++i) {
    snapshot.tree.nodes.push_back({.parent = i - 1,  // A path deeper than the picture.
                                   .tenant = i,
                                   .begin = i,
                                   .end = i + 1,
                                   .has_kv = true,
                                   .checkpoint = cache::CheckpointKind::kEnd,
                                   .hits = 1,
                                   .tokens_below = 1024 - i});
  }
  EXPECT_LT(CachePage("m", &snapshot, 1).size(), 200'000u);
}

TEST(CachePage, SaysSoWhereThereIsNothingYet) {
  EXPECT_THAT(CachePage("m", nullptr, 0), HasSubstr("is being made"));
  const engine::CacheSnapshot empty;
  EXPECT_THAT(CachePage("m", &empty, 0), HasSubstr("0 nodes"));
}

}  // namespace
}  // namespace invar::server
