// What the transfer block means beyond its single fields: roles, the list of producers, and the rules between them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "config/config.h"

namespace invar::config {

// One line of transfer.producers.
struct Producer {
  std::string name;
  std::string address;        // HOST:PORT
  std::string dns_host = {};  // Given: as many producers as this host has addresses, whenever it is looked up.

  bool operator==(const Producer&) const = default;
};

// "NAME=HOST:PORT, NAME=dns:HOST:PORT". Errors: INVALID_ARGUMENT naming transfer.producers.
StatusOr<std::vector<Producer>> ParseProducers(std::string_view text);

bool ServesPrefixes(const Config::Transfer& transfer);   // Roles prefill and both.
bool FetchesPrefixes(const Config::Transfer& transfer);  // Roles decode and both.

// Errors: INVALID_ARGUMENT naming the field.
Status ValidateTransfer(const Config& config);

}  // namespace invar::config
