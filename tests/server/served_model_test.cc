// What the server does about a model that turns out not to be what was loaded.
#include "server/served_model.h"

#include <gtest/gtest.h>

namespace invar::server {
namespace {

TEST(ServedModelDeathTest, DamagedWeightsEndTheProcessAtOnce) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(EndOnDamage(DataLoss("m.packed: block 3")), testing::ExitedWithCode(1), "m.packed: block 3");
}

}  // namespace
}  // namespace invar::server
