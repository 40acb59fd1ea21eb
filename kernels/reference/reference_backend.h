// The backend of definitions: slow, obvious, better precision than what it judges.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace invar::kernels::reference {

std::unique_ptr<Backend> MakeReferenceBackend(WorkerPool& pool);

}  // namespace invar::kernels::reference
