// Included before everything else in builds under ThreadSanitizer by whoever uses messages (CMakeLists.txt): the
// distribution's libprotobuf was built without the sanitizer, and map_field.h gives its classes two more members under
// it, so that reading a map would read past what the library made. The standard headers come first, to keep what they
// do under the sanitizer.
#pragma once

#include <memory>

#undef __SANITIZE_THREAD__
#include <google/protobuf/map_field.h>
#define __SANITIZE_THREAD__ 1
