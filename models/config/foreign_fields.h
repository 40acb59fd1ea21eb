// Fields of config.json by which models that call themselves one of ours compute something else.
#pragma once

#include "models/config/config_reader.h"

namespace invar::models {

// Fails at the first such field that does not have the value at which it changes nothing.
void RefuseForeignFields(ConfigReader& config);

}  // namespace invar::models
