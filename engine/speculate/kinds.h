// What stands behind registry.cc's rows: a file each.
#pragma once

#include <memory>
#include <string>

#include "engine/speculate/drafter.h"

namespace invar::engine {

std::unique_ptr<Drafter> MakeNgramDrafter(const DrafterSetting& setting);

std::unique_ptr<Drafter> MakeOfferedDrafter(const DrafterSetting& setting);

std::unique_ptr<Drafter> MakeMtpDrafter(const DrafterSetting& setting);
std::string WhyNoMtpDrafter(const models::ModelSpec& spec);

std::unique_ptr<Drafter> MakeCompressedKvDrafter(const DrafterSetting& setting);
std::unique_ptr<Drafter> MakeNgramCompressedKvDrafter(const DrafterSetting& setting);

}  // namespace invar::engine
