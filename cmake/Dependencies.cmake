# Every dependency, with the reason it is here. Versions are those of Debian 12; newer ones should do.
set(CMAKE_FIND_PACKAGE_PREFER_CONFIG TRUE)

find_package(Threads REQUIRED)
# Given by the product's definition.
find_package(Protobuf CONFIG QUIET)        # Wire format of the API.
if(NOT Protobuf_FOUND)
  find_package(Protobuf MODULE REQUIRED)
endif()
find_package(gRPC CONFIG REQUIRED)         # The server and the client.
find_package(spdlog CONFIG REQUIRED)       # Logs; brings fmt, which formats error messages.
find_package(fmt CONFIG REQUIRED)          # Same library spdlog uses, so one formatter in the binary.
find_package(yaml-cpp CONFIG REQUIRED)     # Configuration files.
find_package(prometheus-cpp CONFIG REQUIRED)  # Metrics registry and text exposition.
if(INVAR_TESTS)
  find_package(GTest CONFIG REQUIRED)      # Tests.
  find_path(SIMDE_INCLUDE_DIR simde/x86/avx512.h REQUIRED)  # Runs the AVX-512 source on machines without it (tests only).
endif()
# Ours, each in place of code we would otherwise have to keep.
find_package(nlohmann_json CONFIG REQUIRED)  # config.json, tokenizer.json, tool schemas: ordered objects, duplicate keys seen.
find_package(Eigen3 3.4 CONFIG REQUIRED)  # Least squares, eigenvectors and SVD behind `invar calibrate`, in double; headers only.
find_package(CLI11 CONFIG REQUIRED)        # Command lines of invard and invar.
find_package(OpenSSL REQUIRED)             # SHA-256 of weights, prefixes and API tokens; already linked by gRPC.
find_library(UTF8PROC_LIBRARY utf8proc REQUIRED)   # Unicode categories and NFC for the tokenizers.
find_path(UTF8PROC_INCLUDE_DIR utf8proc.h REQUIRED)
find_path(HTTPLIB_INCLUDE_DIR httplib.h REQUIRED)  # Ops port: /metrics, /livez, /readyz, /version.
find_library(XXHASH_LIBRARY xxhash REQUIRED)       # Checksums of the disk tier at memory speed.
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
find_library(HIREDIS_LIBRARY hiredis REQUIRED)     # Commands and replies of the Redis/Valkey protocol for the remote tier.
find_path(HIREDIS_INCLUDE_DIR hiredis/hiredis.h REQUIRED)
